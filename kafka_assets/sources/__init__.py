"""Where rows come from: one module a source. Each knows how to read it and what it holds now."""
