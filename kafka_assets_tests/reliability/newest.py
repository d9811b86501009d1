"""One more pipeline file of the long rounds: the newest record of each key of a topic.

`kinds` runs it with the topic's name as `TOPIC`: a word that makes several declarations at once
needs a module that is being imported.
"""

from __future__ import annotations

from typing import Any

import kafka_assets as ka

keyed = ka.kafka_topic(str(globals()["TOPIC"]), name="keyed")


@ka.latest_per_key(layer="silver", schema="keyed.ddl")
@ka.expect_or_drop("counted", "n >= 0")
def newest(keyed: Any) -> Any:
    """What each key said last."""
    return keyed
