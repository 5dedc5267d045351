"""What is right, of all that may become of a round. Whatever is not said here to be right is wrong.

1. Nobody gets wrong bytes, panics, or says that something is corrupt: ranks compare every byte themselves.
2. Where nobody was ended everybody succeeds, whatever was stopped for less than the time-out, and when a whole job was stopped for longer.
3. All have ended some time after the last harm.
4. All survivors that fail say the same, and it names one that was ended, by its rank and process id. After rank 0 has been ended, or several have,
   they may say different things, each of which names one of them. Who is started when the meeting has failed already cannot tell that from
   the next attempt, and misses rank 0, which has failed and said why.
5. A call has one verdict: where one survivor's has succeeded, nobody's fails, unless it reads from the memory of a process that is gone, or was
   too late for the call and comes after the loss.
6. Where nobody was ended nothing is left; and otherwise nothing that `fsgather clean --execute` does not remove at once, or a little later
   where a thing names nobody and holds nothing.
7. No process is left.
8. Jobs that have no id and meet in one directory succeed, or say that they have met. They never mix.
"""

from __future__ import annotations

import re

from drawing import Job, Round
from jobs.judgement import LIBRARY_ERRORS, judge_end, named_ranks
from jobs.processes import Outcome
from playing import JobSeen, RoundSeen

NAMES_NOBODY = re.compile(
    r"/probe-[0-9a-f]+ \(\d+ bytes\)$|/rendezvous-[^/]* \(0 bytes\)$|/gather-[^/]* \(directory\)$|/detour-[^/]* \(\d+ bytes\)$"
)
"""Write probes, records that were torn before their first byte, directories in the making, and messages on a detour."""

SAYS_TWO_JOBS = re.compile(r"FSGATHER_JOB")


def judge(drawn: Round, seen: RoundSeen) -> list[str]:
    """What is wrong."""
    problems = []
    for job, its in zip(drawn.jobs, seen.jobs):
        problems += [f"job {job.number}: {problem}" for problem in judge_job(job, its)]
    harmed = any(rank.harmed or rank.code is None for job in seen.jobs for rank in job.ranks)
    if not harmed and not problems and seen.left:
        problems.append(f"6: nobody was ended, and there is left: {seen.left[:6]}")
    kept = [path for path in seen.left_after_cleaning if not NAMES_NOBODY.search(path)]
    if kept or seen.left_as_if_later:
        problems.append(f"6: not cleaned: {kept[:6]}, later {seen.left_as_if_later[:6]}; clean said: {seen.cleaning[-600:]}")
    return problems


def judge_job(job: Job, seen: JobSeen) -> list[str]:
    """What is wrong with one job."""
    problems = []
    if seen.processes_left:
        problems.append(f"7: processes are left: {seen.processes_left}")
    survivors = {rank: its for rank, its in enumerate(seen.ranks) if its.harmed is None and its.code is not None}
    failed = {rank: its for rank, its in survivors.items() if its.code != 0}
    for rank, its in enumerate(seen.ranks):
        if its.code is None:
            problems.append(f"3: rank {rank} does not end")
        else:
            # Harm never makes data corrupt (13), and it may end a rank with a signal.
            codes = LIBRARY_ERRORS.keys() - {13} | {0} | ({its.code} if its.harmed or is_failed_reading(its) else set())
            problems += [f"1: {problem}" for problem in judge_end(f"rank {rank}", its, codes)]
    ended = {rank: its for rank, its in enumerate(seen.ranks) if its.harmed}
    if job.job_id is None and failed and not ended:
        if not all(SAYS_TWO_JOBS.search(its.cause) for its in failed.values()):
            problems.append(f"8: without an id: {texts(failed)}")
    elif not ended:
        problems += [f"2: rank {rank} failed: {its.cause}" for rank, its in failed.items()]
    else:
        problems += judge_errors(seen, failed, ended)
        problems += judge_verdicts(job, survivors, ended)
    return problems


def is_failed_reading(its: Outcome) -> bool:
    """Whether an error of the library came while a stream was read."""
    return its.code == 1 and "\nerror: stream of rank " in "\n" + its.err and "wrong" not in its.cause


def texts(failed: dict[int, Outcome]) -> dict[str, list[int]]:
    """Who says what."""
    said: dict[str, list[int]] = {}
    for rank, its in failed.items():
        said.setdefault(its.cause, []).append(rank)
    return said


def judge_errors(seen: JobSeen, failed: dict[int, Outcome], ended: dict[int, Outcome]) -> list[str]:
    """Whether the right ones are named, in the same words."""
    said = texts(failed)
    problems = []
    if len(said) > 1 and len(ended) == 1 and 0 not in ended and not seen.harmed_while_meeting:
        problems.append(f"4: different errors: {said}")
    for text in said:
        named = named_ranks(text)
        right = {(rank, its.pid) for rank, its in ended.items()}
        if seen.harmed_while_meeting:
            # Who was not known yet has no process, and is missed under its number.
            came_too_late = "waiting for rank 0 (never joined)" in text and 0 in failed
            if not came_too_late and not any(re.search(rf"rank {rank}\b", text) for rank in ended):
                problems.append(f"4: names nobody that was ended: {text}")
        elif not named or named[0] not in right:
            problems.append(f"4: names somebody that was not ended, or nobody: {text}")
    return problems


def judge_verdicts(job: Job, survivors: dict[int, Outcome], ended: dict[int, Outcome]) -> list[str]:
    """Whether calls ended alike for all survivors."""
    if 0 in ended or job.script.has_storm:
        # Whether a call was decided may be known to nobody then; and on several threads it is not said which.
        return []
    succeeded: dict[int, int] = {}
    for rank, its in survivors.items():
        for call in job.script.call_of[rank][: its.done]:
            if call is not None:
                succeeded.setdefault(call, rank)
    problems = []
    for rank, its in survivors.items():
        calls = job.script.call_of[rank]
        call = calls[its.done] if its.code != 0 and its.done < len(calls) else None
        if call is None or call not in succeeded:
            continue
        made = job.script.calls[call]
        from_memory = job.mode != "files" or made.step.startswith("by:memory")
        if made.moves_payloads and from_memory and any(member in ended for member in made.members):
            continue
        problems.append(f"5: {made.step} of {made.members} succeeded on rank {succeeded[call]}, on rank {rank}: {its.cause}")
    return problems
