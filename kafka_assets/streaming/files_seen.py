"""Files that go while a run reads them, which Spark alone would not tell.

It notes a file when it lists it, reads it later, and passes over one that went in between. How far
files are known to have been there when they were read is kept beside the checkpoint, so
that a run which died before it could look is looked at by the next one. Files that were seen and
not read yet are `fence`'s.
"""

from __future__ import annotations

from kafka_assets.errors import SourceError
from kafka_assets.graph import Files, Node
from kafka_assets.sources import files
from kafka_assets.streaming.checkpoint import Checkpoint
from kafka_assets.streaming.tables import LakeTable


def begin(node: Node) -> None:
    """Note where a run begins, before it reads; nothing for a table that reads no files."""
    if not _reads_files(node):
        return
    try:
        checkpoint = Checkpoint.read(node.checkpoint)
        if checkpoint.files_seen is not None:
            return
        done = -1
        if checkpoint.query_id is not None:
            done = LakeTable.existing(node.path).transaction(checkpoint.query_id)
        checkpoint.write_files_seen(checkpoint.file_positions(done))
    except ValueError:
        # The fence says what is damaged.
        return


def end(node: Node, *, failed: bool = False) -> None:
    """Look whether all files that runs have read since they were last looked at are still there.

    Args:
        node: The table or flow.
        failed: The run failed with an error of its own: a file that is gone is the next run's to
            name.

    Raises:
        SourceError: One of them is gone; it is named once.
    """
    if not _reads_files(node):
        return
    checkpoint = Checkpoint.read(node.checkpoint)
    gone = files.gone(checkpoint.files_read(after=checkpoint.files_seen))
    if gone and failed:
        return
    checkpoint.write_files_seen(checkpoint.file_positions(checkpoint.last_commit))
    if gone:
        raise SourceError(
            f"table {node.name!r}: {len(gone)} files went while they were read, such as {gone[0]}; "
            "Spark passes over a file that goes before its batch, so its rows may be missing. All "
            "others are committed",
            fix="put them under a new name if the table does not have their rows; keep files "
            "until the run that reads them has ended",
        )


def _reads_files(node: Node) -> bool:
    return any(isinstance(source, Files) for source in node.streams)
