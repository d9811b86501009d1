"""Schema files load without Spark, in both forms, and a wrong one says what is wrong where."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import types as T

from kafka_assets.schemas import find_schema, fingerprint, load_schema


def written(tmp_path: Path, name: str, text: str) -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_ddl_and_json_files_of_one_schema_load_alike(tmp_path: Path) -> None:
    ddl = load_schema(written(tmp_path, "a.ddl", "id BIGINT NOT NULL, tags ARRAY<STRING>"))
    json = load_schema(written(tmp_path, "a.json", ddl.json()))
    assert ddl == json
    assert fingerprint(ddl) == fingerprint(json)
    assert not ddl["id"].nullable


def test_ddl_knows_nested_types_decimals_and_comments(tmp_path: Path) -> None:
    schema = load_schema(
        written(
            tmp_path,
            "a.ddl",
            "price DECIMAL(12, 2) COMMENT 'in euros',\n"
            "home STRUCT<street: STRING, at: TIMESTAMP>, counts MAP<STRING, INT>, day DATE",
        )
    )
    assert schema["price"].dataType == T.DecimalType(12, 2)
    assert schema["price"].metadata == {"comment": "in euros"}
    assert schema["home"].dataType.simpleString() == "struct<street:string,at:timestamp>"
    assert schema["counts"].dataType == T.MapType(T.StringType(), T.IntegerType())


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "a.json:1: not JSON"),
        ("a.json", "[]", "not a Spark schema"),
        ("a.ddl", "id BIGINT,\nname", "'name' is no column with a type"),
        ("a.ddl", "id GEOGRAPHY", "type 'GEOGRAPHY' is not supported"),
        ("a.ddl", "_id INT", "'_id': names that begin with _ are reserved"),
        ("a.ddl", "id INT, ID INT", "'ID' stands there twice"),
        ("a.ddl", "tags ARRAY", "'ARRAY' needs 1 types in < >"),
        ("a.ddl", "tags MAP<STRING>", "'MAP<STRING>' needs 2 types"),
        ("a.ddl", "amount DECIMAL(50, 2)", "DECIMAL(50, 2): Spark has 1 to 38 digits"),
        ("a.ddl", "amount DECIMAL(2, 3)", "DECIMAL(2, 3)"),
        ("a.yaml", "id: int", "ends in .json, .ddl or .sql"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_what_is_wrong(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(ValueError, match="a\\.") as raised:
        load_schema(written(tmp_path, name, text))
    assert message in str(raised.value)


def test_a_file_that_is_no_text_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.ddl").write_bytes(b"id INT COMMENT '\xff'")
    with pytest.raises(ValueError, match=r"a\.ddl: cannot be read as UTF-8"):
        load_schema(tmp_path / "a.ddl")
    (tmp_path / "b.ddl").mkdir()
    with pytest.raises(ValueError, match=r"b\.ddl: cannot be read as UTF-8"):
        load_schema(tmp_path / "b.ddl")


@pytest.mark.parametrize("name", ["../secret.json", "/etc/passwd"])
def test_a_schema_name_cannot_leave_the_folders(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="relative to the schemas folder"):
        find_schema(name, [tmp_path])


def test_the_first_folder_that_has_the_file_wins(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    written(tmp_path / "two", "a.ddl", "id INT")
    assert find_schema("a.ddl", [tmp_path / "one", tmp_path / "two"]).parent.name == "two"
