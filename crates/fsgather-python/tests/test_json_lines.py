"""Files of JSON lines that several write at once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsgather
import pytest
from fsgather import _json_lines


def test_of_writers_of_one_file_at_once_each_writes_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda writer: _json_lines.write(str(path), ((number, writer) for number in range(1000))), range(8)))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["id"] for line in lines] == list(range(1000))
    assert len({line["result"] for line in lines}) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_of_samples_is_not_replaced(tmp_path: Path) -> None:
    with fsgather.samples(tmp_path) as samples:
        samples.add("a", 1)
    (file,) = tmp_path.iterdir()
    link = tmp_path / "link"
    link.symlink_to(file)
    for path in (file, link):
        with pytest.raises(fsgather.ConfigError, match="a file of samples"):
            _json_lines.write(str(path), [("a", 1)])
    assert dict(fsgather.read_samples(tmp_path)) == {"a": 1}
