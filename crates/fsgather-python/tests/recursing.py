"""Goes far down and up again all the time while another thread looks at its stack; tells how many looks have seen functions.

Takes how many looks there are to be.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from fsgather import _fsgather

seen: list[Any] = []


def main() -> None:
    def deep(levels: int) -> int:
        return levels and deep(levels - 1)

    # The clock is asked in order that not only one function is called.
    while thread.is_alive() and time.time():
        deep(900)


thread = threading.Thread(target=lambda: seen.extend(_fsgather.sample_stacks(int(sys.argv[1]))))
thread.start()
main()
for stack, _ in seen:
    names = [function for _, _, function in stack]
    # Of a deep stack the outermost ones are left out.
    assert set(names) <= {"<module>", "main", "deep", "is_alive", "is_set", "_wait_for_tstate_lock", "is_done"}, names
    assert names[:1] in ([], ["<module>"]) or len(names) == 12, names
print(sum(count for stack, count in seen if stack))
