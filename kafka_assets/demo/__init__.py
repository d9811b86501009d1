"""What the demo and the tests need and a pipeline does not: a broker and events to put on it."""
