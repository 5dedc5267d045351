"""Judges a run: what came of it, and which promises it broke."""

import re

from jobs.judgement import LIBRARY_ERRORS, judge_end
from playing import TIMEOUT, TOOLS

# From docs/guarantees.md: an answer comes 10 s after the time-out at the latest. The meeting and a call may each wait for so long.
LONGEST = 2 * TIMEOUT + 10
# Who has given rank 0 up stays for so long for those who read what it alone keeps.
STAYS = min(10, TIMEOUT)
# A path, a host, an address or a line of the program; or a place that all know: the meeting, and the process that speaks.
PLACE = re.compile(r"/|\bon \S+|\d:\d|in meeting of|could not meet|ulimit|start a thread|network runtime")


def judge(case, played):
    """The outcome in a word, and a list of what is wrong."""
    wrong = []
    if not played.hit:
        outcome = "not reached"
    elif all(ended.code == 0 for ended in played.ended):
        outcome = "right"
    elif any(ended.code == 0 for ended in played.ended):
        outcome = "some right"
    else:
        outcome = "error"
    for who, ended in enumerate(played.ended):
        wrong += _judge_one(case, played, who, ended)
    for who, ended in enumerate(played.ended):
        # Who hangs in the kernel cannot come back before the kernel does.
        own = int(case.action.partition(":")[2]) / 1000 if case.kind in ("hang", "stall", "stop") else 0
        longest = LONGEST + own if who == case.victim or case.kind != "stall" else LONGEST + STAYS
        if ended.took > longest:
            wrong.append(f"process {who} took {ended.took:.1f} s")
    wrong += _judge_agreement(case, played)
    wrong += _judge_what_is_left(case, played)
    return outcome, wrong


def _judge_one(case, played, who, ended):
    is_victim = who == case.victim
    was_killed = is_victim and case.kind == "kill" and played.hit and ended.code == 137
    # The command has errors of its own, with 1.
    codes = {0, 2, *LIBRARY_ERRORS} | ({1} if case.scenario in TOOLS else set()) | ({137} if was_killed else set())
    wrong = judge_end(f"process {who}", ended, codes)
    if wrong or was_killed:
        return wrong
    if ended.code == 0:
        if case.scenario not in TOOLS and "done close" not in ended.out:
            return [f"process {who} ends early without an error"]
        return []
    if not played.hit:
        return [f"process {who} fails without a fault: {ended.error[:200]}"]
    if not ended.error:
        return [f"process {who} fails without a word"]
    # These pauses are shorter than every time-out.
    if case.kind in ("stop", "hang"):
        return [f"process {who} does not wait for one that pauses: {ended.error[:200]}"]
    if case.scenario in TOOLS:
        return [] if "/" in ended.error else [f"an error without a path: {ended.error[:200]}"]
    # The victim need not say its own number where it names the place. A connection that breaks has two ends, and either may be the one that is lost.
    who_is_named = r"\d+" if case.call.endswith(".socket") and case.kind != "kill" else case.victim
    if not is_victim and not re.search(rf"\brank {who_is_named}\b", ended.error):
        wrong.append(f"process {who} does not name rank {case.victim}: {ended.error[:300]}")
    if not PLACE.search(ended.error):
        wrong.append(f"process {who} names no place: {ended.error[:300]}")
    return wrong


def _judge_agreement(case, played):
    """All who hear rank 0 are told the same. Who has not met them says its own, and who stalls over marker files is not heard."""
    if case.scenario in TOOLS or not case.call.endswith(".file") or case.kind in ("kill", "stall"):
        return []
    errors = sorted({ended.error for ended in played.ended if ended.error and "done join" in ended.out})
    return [f"ranks report different errors: {' | '.join(errors)[:400]}"] if len(errors) > 1 else []


def _judge_what_is_left(case, played):
    wrong = []
    for who, ended in enumerate(played.next):
        if ended.code != 0:
            wrong.append(f"the next gather fails on {who} ({ended.code}): {(ended.error or ended.err)[:300]}")
            break
    if played.left_after_clean:
        wrong.append(f"clean leaves {' '.join(played.left_after_clean[:4])}")
    if case.scenario == "inspect" and played.changed:
        wrong.append("inspect changes the directory")
    is_good = case.scenario not in TOOLS and all(ended.code == 0 for ended in played.ended)
    # Who hangs at its end cannot take back what proves nothing, nor what others have left.
    is_late = case.kind == "hang" and (case.scenario == "sweep" or all(name.startswith(("rendezvous-", "probe-")) for name in played.left))
    # The last calls of ranks that were killed stay for a day.
    left = [] if is_late else [name for name in played.left if name not in played.last_calls]
    if is_good and left and case.kind in ("stop", "hang", "short"):
        wrong.append(f"a job that succeeds leaves {' '.join(left[:4])}")
    return wrong
