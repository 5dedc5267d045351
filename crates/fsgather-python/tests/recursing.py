"""Goes far down and up again all the time while another thread looks at its stack; tells how many looks have seen functions.

Takes how many of these there are to be. On a busy machine few looks are, so that more are taken, up to a limit.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from fsgather import _fsgather

AT_ONCE = 60
AT_MOST = 1200

seen: list[Any] = []


def named() -> int:
    return sum(count for stack, count in seen if stack)


def look(wanted: int) -> None:
    for _ in range(0, AT_MOST, AT_ONCE):
        seen.extend(_fsgather.sample_stacks(AT_ONCE))
        if named() >= wanted:
            return


def main() -> None:
    def deep(levels: int) -> int:
        return levels and deep(levels - 1)

    # The clock is asked in order that not only one function is called.
    while thread.is_alive() and time.time():
        deep(900)


thread = threading.Thread(target=look, args=[int(sys.argv[1])])
thread.start()
main()
for stack, _ in seen:
    names = [function for _, _, function in stack]
    # Of a deep stack the outermost ones are left out.
    assert set(names) <= {"<module>", "main", "deep", "is_alive", "is_set", "_wait_for_tstate_lock", "is_done"}, names
    assert names[:1] in ([], ["<module>"]) or len(names) == 12, names
print(named())
