"""Files of JSON lines that several write at once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fsgather import _json_lines


def test_of_writers_of_one_file_at_once_each_writes_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda writer: _json_lines.write(str(path), ((number, writer) for number in range(1000))), range(8)))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["id"] for line in lines] == list(range(1000))
    assert len({line["result"] for line in lines}) == 1
    assert list(tmp_path.iterdir()) == [path]
