"""Write an invented but realistic sacct export: 90 days of the mixed cluster `heron`.

python examples/make_example.py OUT [--seed 7] [--days 90] [--nodes NODES.csv]

The work is planned first (who asks for what, how long it needs, what a user does after a wall),
then placed on the nodes without ever overfilling one, then printed as
`sacct -a -D -P --noconvert` of Slurm 23.11 prints it. The same seed and days give the same bytes.
`truth` counts the plan, not the printed file.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypedDict

HEADER = (
    "JobID|JobIDRaw|Cluster|User|Account|Partition|QOS|State|ExitCode|Submit|Eligible|Start|End|"
    "Elapsed|ElapsedRaw|Suspended|Timelimit|TimelimitRaw|NNodes|NCPUS|ReqMem|AllocTRES|ReqTRES|"
    "Flags|NodeList|Reservation|WorkDir|SubmitLine|JobName"
)
BEGIN = int(datetime(2026, 7, 1, tzinfo=UTC).timestamp())
HOUR, DAY = 3600, 86400
WARM_UP = 3 * DAY
FIRST_JOB = 4_182_019
USERS = 60
DECISIONS_A_DAY = 19
NEVER = 1 << 40


# --- the cluster ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """One node as its slurm.conf line describes it."""

    name: str
    partition: str
    cpus: int
    memory: int
    gpus: int = 0
    model: str = ""


def rack(prefix: str, count: int, node: Node) -> list[Node]:
    """`count` nodes like `node`, named by number."""
    return [replace(node, name=f"{prefix}{i:03d}") for i in range(1, count + 1)]


NODES = (
    *rack("hc", 40, Node("", "cpu", 64, 257_000)),
    *rack("hl", 10, Node("", "long", 64, 257_000)),
    *rack("ha", 12, Node("", "gpu", 64, 515_000, 4, "a100")),
    *rack("hh", 6, Node("", "gpu", 96, 1_031_000, 8, "h100")),
    *rack("hb", 3, Node("", "bigmem", 96, 3_095_000)),
    *rack("hd", 2, Node("", "debug", 64, 257_000)),
    *rack("hi", 4, Node("", "interactive", 64, 515_000)),
)
LONGEST = {"cpu": 72, "long": 336, "gpu": 72, "bigmem": 168, "debug": 1, "interactive": 12}
LADDER = (1, 2, 4, 8, 24, 72, 168, 336)


# --- what people run -----------------------------------------------------------------------


@dataclass(frozen=True)
class App:
    """A kind of work: its size on a node, the limits people give it, and how long it needs."""

    partition: str
    names: tuple[str, ...]
    script: str
    cpus: int
    memory: int
    limits: tuple[int, ...]
    need: float
    spread: float
    nodes: tuple[int, ...] = (1,)
    gpus: int = 0
    model: str = ""
    step: str = ""
    habit: str = "once"
    tasks: int = 0
    out_of_memory: float = 0.008


MDRUN = "gmx_mpi mdrun -deffnm md -cpi md.cpt -maxh 23.9"
APPS = {
    "torch": App(
        "gpu", ("resnet152", "vit_base", "unet3d", "seq2seq"), "train.sbatch", 64, 480_000,
        (24, 48), 26, 0.8, gpus=4, model="a100", step="torchrun --nproc_per_node=4 train.py",
        habit="resume",
    ),
    "pretrain": App(
        "gpu", ("pretrain_1b", "pretrain_3b"), "pretrain.sbatch", 96, 960_000,
        (24, 48), 34, 0.7, gpus=8, model="h100", step="torchrun --nproc_per_node=8 pretrain.py",
        habit="resume",
    ),
    "finetune": App(
        "gpu", ("finetune", "lora", "eval"), "finetune.sbatch", 16, 120_000,
        (4, 8, 12, 24), 2.0, 1.2, gpus=1, model="a100", step="python finetune.py",
    ),
    "lightning": App(
        "gpu", ("lit_detector", "lit_flow"), "--signal=B:USR1@90 lit_train.sbatch", 32, 240_000,
        (24,), 52, 0.5, gpus=2, model="a100", habit="signal",
    ),
    "gromacs": App(
        "gpu", ("md_membrane", "md_lysozyme"), "md_run.sbatch", 16, 60_000,
        (24,), 60, 0.5, gpus=1, model="a100", step=MDRUN, habit="maxh",
    ),
    "relion": App(
        "gpu", ("class3d", "refine3d"), "relion.sbatch", 32, 240_000,
        (24, 48), 10, 0.7, gpus=2, model="a100", step="relion_refine_mpi --o Refine3D/job042/run",
    ),
    "vasp": App(
        "cpu", ("relax", "neb", "bands"), "vasp.sbatch", 64, 250_000,
        (8, 24, 48), 9, 1.0, nodes=(1, 2, 2, 4), step="vasp_std", habit="longer",
    ),
    "qe": App(
        "cpu", ("scf", "phonon"), "pw.sbatch", 64, 250_000,
        (4, 12, 24), 3, 1.0, nodes=(1, 1, 2), step="pw.x -in scf.in", habit="longer",
    ),
    "lammps": App(
        "cpu", ("melt", "polymer", "shear"), "lammps.sbatch", 64, 120_000,
        (12, 24, 48), 17, 0.9, nodes=(1, 2, 4), step="lmp -in in.melt", habit="resume",
    ),
    "orca": App(
        "long", ("opt_freq", "ts_search"), "orca.sbatch", 32, 128_000,
        (72, 168), 48, 0.9, habit="longer",
    ),
    "foam": App(
        "cpu", ("wing", "duct", "cyclone"), "foam.sbatch", 64, 200_000,
        (12, 24, 48), 16, 0.8, nodes=(2, 4, 4, 8), step="simpleFoam -parallel",
    ),
    "wrf": App(
        "cpu", ("wrf_d01", "wrf_d02"), "wrf.sbatch", 64, 200_000,
        (12,), 6, 0.4, nodes=(4, 8), step="wrf.exe",
    ),
    "bwa": App(
        "cpu", ("align", "markdup"), "align.sbatch", 8, 32_000, (2, 4, 8), 0.9, 0.6, tasks=16,
    ),
    "gatk": App(
        "cpu", ("haplotype", "joint_call"), "gatk.sbatch", 4, 16_000,
        (4, 8, 24), 2.2, 0.6, tasks=10,
    ),
    "spades": App(
        "bigmem", ("assembly",), "spades.sbatch", 32, 1_000_000,
        (24, 72, 168), 18, 0.8, out_of_memory=0.12,
    ),
    "nextflow": App(
        "long", ("nf-core-rnaseq", "snakemake-main"), "head.sbatch", 2, 8_000, (72, 168), 20, 0.9,
    ),
    "rscript": App(
        "cpu", ("bootstrap", "mcmc"), "run_R.sbatch", 1, 4_000, (1, 4, 12), 0.5, 0.8, tasks=16,
    ),
    "matlab": App(
        "cpu", ("monte_carlo", "fit_model"), "matlab.sbatch", 4, 16_000, (4, 12), 1.5, 0.7, tasks=6,
    ),
}  # fmt: skip
FIELDS = (
    ("torch", "finetune", "finetune", "pretrain"),
    ("bwa", "gatk", "spades", "nextflow"),
    ("vasp", "qe", "orca"),
    ("rscript", "matlab", "rscript"),
    ("foam", "lammps"),
    ("gromacs", "lammps", "orca"),
    ("lightning", "finetune", "torch"),
    ("wrf", "foam"),
    ("relion", "bwa", "nextflow"),
    ("vasp", "gromacs"),
)
BY_DAY = (2, 1, 1, 1, 1, 1, 2, 5, 9, 10, 10, 9, 7, 8, 10, 10, 9, 8, 6, 4, 4, 4, 3, 3)


@dataclass(frozen=True)
class User:
    """A login with what this person runs and how often."""

    login: str
    uid: int
    account: str
    apps: tuple[str, ...]
    weight: float


@dataclass(frozen=True)
class Request:
    """One submission, with the outcome that awaits it. Sizes are for one node."""

    user: User
    partition: str
    name: str
    workdir: str
    line: str
    cpus: int
    memory: int
    minutes: int | None
    run: int
    state: str = "COMPLETED"
    exit_code: str = "0:0"
    nodes: int = 1
    gpus: int = 0
    model: str = ""
    step: str = ""
    launch: str = "batch"
    qos: str = ""
    link: str = ""
    delay: int = 0
    lag: int = 7
    array: int = 0
    task: str = ""
    split: str = ""
    until: int = 0
    reservation: str = ""

    @property
    def session(self) -> bool:
        """A person sits in it, or has left it open."""
        return self.launch != "batch" or self.name.startswith("sys/dashboard/")


class Chain(NamedTuple):
    """A first submission and those that follow from it, one after the other."""

    submit: int
    requests: tuple[Request, ...]


# --- planning: what is submitted, and what becomes of it ---------------------------------------


def people(rng: random.Random) -> tuple[User, ...]:
    """Sixty logins whose activity falls with their rank, so that a few use most."""
    logins = sorted(rng.sample(range(1, 400), USERS))
    rng.shuffle(logins)
    return tuple(
        User(
            login=f"hpc{number:03d}",
            uid=20_000 + number,
            account=f"hp{4100 + 7 * (rank % 23)}",
            apps=FIELDS[rank % len(FIELDS)],
            weight=1 / (rank + 1.5),
        )
        for rank, number in enumerate(logins)
    )


def working_moment(rng: random.Random, begin: int, end: int) -> int:
    """A time at which people submit: office hours of working days more than others."""
    while True:
        moment = rng.randrange(begin, end)
        at = datetime.fromtimestamp(moment, UTC)
        weight = BY_DAY[at.hour] * (0.3 if at.weekday() > 4 else 1)
        if rng.random() * max(BY_DAY) < weight:
            return moment


def over(rng: random.Random, hours: float) -> int:
    """Elapsed seconds of a run that the limit ended: the limit is checked every 30 s."""
    return int(hours * HOUR) + rng.randint(1, 28)


def choose_limit(rng: random.Random, app: App, need: float) -> int:
    """What a user writes as --time: a guess well above the need, as a rule."""
    guess = need * rng.lognormvariate(0.85, 0.5)
    return next((hours for hours in app.limits if hours >= guess), app.limits[-1])


def outcome(rng: random.Random, request: Request, app: App, need: float, limit: int) -> Request:
    """`request` with the state and run time that a need of `need` hours leads to."""
    draw, most = rng.random(), min(need, limit) * HOUR
    early = max(4, int(most * rng.random() ** 3))
    part = max(4, int(most * rng.random()))
    request = replace(request, minutes=limit * 60, lag=rng.randint(1, 29))
    if draw < 0.06:
        code = rng.choice(("1:0", "1:0", "1:0", "2:0", "127:0", "0:11"))
        return replace(request, state="FAILED", exit_code=code, run=early)
    if draw < 0.10:
        return replace(request, state=f"CANCELLED by {request.user.uid}", run=part)
    if draw < 0.10 + app.out_of_memory:
        return replace(request, state="OUT_OF_MEMORY", exit_code="0:125", run=part)
    if need > limit:
        return replace(request, state="TIMEOUT", run=over(rng, limit))
    return replace(request, run=max(9, int(need * HOUR)))


def second_thoughts(rng: random.Random) -> int:
    """Seconds between an end and the next submission by hand."""
    return min(int(rng.lognormvariate(9.2, 1.2)), 6 * DAY)


def after_wall(
    rng: random.Random, app: App, need: float, limit: int
) -> tuple[float, int, str] | None:
    """What follows a TIMEOUT: (hours still needed, new limit, kind of submission), or nothing."""
    chance = {"resume": 0.85, "longer": 0.7}.get(app.habit, 0.35)
    if rng.random() > chance:
        return None
    if app.habit == "resume":
        return need - 0.95 * limit, limit, "requeue" if rng.random() < 0.15 else "resubmit"
    longer = [hours for hours in LADDER if limit < hours <= LONGEST[app.partition]]
    return (need, longer[0], "resubmit") if longer else None


def follow(rng: random.Random, first: Request, app: App, need: float, limit: int) -> list[Request]:
    """The attempts at one piece of work: after a wall it is resumed, or asked for more time."""
    attempt = outcome(rng, first, app, need, limit)
    attempts = [attempt]
    while attempt.state == "TIMEOUT" and len(attempts) < 6:
        step = after_wall(rng, app, need, limit)
        if step is None:
            break
        need, limit, link = step
        again = replace(first, link=link, delay=second_thoughts(rng), line=timed(app, limit))
        attempt = outcome(rng, again, app, need, limit)
        attempts.append(attempt)
    return attempts


def segments(rng: random.Random, first: Request, app: App, need: float) -> list[Request]:
    """Work that stops itself just before its wall and goes on in the next job."""
    limit = app.limits[-1]
    parts = min(6, 1 + int(need // limit))
    early = rng.randint(30, 85) if app.habit == "signal" else int(0.014 * limit * HOUR)
    full = replace(first, minutes=limit * 60, run=limit * HOUR - early)
    chain = [full] * (parts - 1)
    chain.append(outcome(rng, first, app, max(0.2, need % limit), limit))
    if app.habit == "maxh":
        line = f"sbatch --dependency=afterany:{{after}} {app.script}"
        rest = [replace(part, link="afterany", line=line) for part in chain[1:]]
    elif rng.random() < 0.5:
        # The handler calls scontrol requeue: the run that was interrupted is recorded as such.
        chain = [replace(part, state="REQUEUED") for part in chain[:-1]] + chain[-1:]
        rest = [replace(part, link="requeue") for part in chain[1:]]
    else:
        rest = [replace(part, link="resubmit", delay=4) for part in chain[1:]]
    return [chain[0], *rest]


def interrupted(rng: random.Random, chain: list[Request], app: App) -> list[Request]:
    """`chain`, a few times with a run before it that a node failure or preemption cut short."""
    draw, first = rng.random(), chain[0]
    cut = max(60, int(first.run * rng.uniform(0.1, 0.9)))
    if app.gpus == 1 and draw < 0.08:
        chain = [replace(request, qos="scavenger") for request in chain]
        first = chain[0]
        short = replace(first, state="PREEMPTED", run=cut)
    elif draw > 0.994:
        short = replace(first, state="NODE_FAIL", exit_code="0:0", run=cut)
    else:
        return chain
    return [short, replace(first, link="requeue"), *chain[1:]]


def timed(app: App, limit: int) -> str:
    """The submission line of a batch job with its limit on it."""
    return f"sbatch --time={clock(limit * HOUR)} {app.script}"


def basic(rng: random.Random, user: User, app: App, name: str, workdir: str) -> Request:
    """The request all jobs of one decision share."""
    return Request(
        user, app.partition, name, workdir, f"sbatch {app.script}", app.cpus, app.memory,
        minutes=None, run=0, nodes=rng.choice(app.nodes), gpus=app.gpus, model=app.model,
        step=app.step,
    )  # fmt: skip


def batch_work(rng: random.Random, user: User, submit: int, arrays: Iterator[int]) -> list[Chain]:
    """One decision to compute: an array, or one to five jobs of a kind."""
    app = APPS[rng.choice(user.apps)]
    base = rng.choice(app.names)
    first, workdir = rng.randrange(1, 90), f"/scratch/{user.account}/{user.login}/{base}"
    need = app.need * rng.lognormvariate(0, app.spread)
    limit = choose_limit(rng, app, need)
    if app.tasks:
        tasks = rng.randint(4, app.tasks)
        shared = basic(rng, user, app, base, workdir)
        shared = replace(shared, array=next(arrays), line=f"sbatch --array=1-{tasks} {app.script}")
        spread = [need * rng.lognormvariate(-0.2, 0.15) for _ in range(tasks)]
        done = [outcome(rng, shared, app, hours, limit) for hours in spread]
        return [Chain(submit, (replace(r, task=str(i)),)) for i, r in enumerate(done, 1)]
    chains = []
    for number in range(first, first + rng.choice((1, 1, 1, 1, 2, 3, 5))):
        work = basic(rng, user, app, f"{base}_{number:02d}", f"{workdir}/r{number:02d}")
        own = need * rng.lognormvariate(0, 0.2)
        if app.habit in ("maxh", "signal"):
            attempts = segments(rng, work, app, own)
        else:
            attempts = follow(rng, replace(work, line=timed(app, limit)), app, own, limit)
        chains.append(Chain(submit + number - first, tuple(interrupted(rng, attempts, app))))
    return chains


def session(rng: random.Random, user: User, submit: int) -> list[Chain]:
    """Someone works by hand, and leaves the session open about one time in four."""
    hours = rng.choice((2, 4, 8, 8, 12))
    home, limit = f"/home/{user.login}", clock(hours * HOUR)
    ended = rng.random() < 0.27
    request = Request(
        user, "interactive", "interactive", home,
        f"salloc --partition=interactive --cpus-per-task=4 --time={limit}", 4, 16_000, hours * 60,
        over(rng, hours) if ended else max(40, int(hours * HOUR * rng.random())),
        "TIMEOUT" if ended else "COMPLETED", launch="salloc", lag=rng.randint(1, 4),
    )  # fmt: skip
    kind = rng.random()
    if kind < 0.6:
        made = f"{rng.getrandbits(32):08x}-{rng.getrandbits(16):04x}-4{rng.getrandbits(12):03x}-"
        made += f"a{rng.getrandbits(12):03x}-{rng.getrandbits(48):012x}"
        workdir = f"{home}/ondemand/data/sys/dashboard/batch_connect/sys/jupyter/output/{made}"
        line = f"sbatch -D {workdir} -J sys/dashboard/sys/jupyter -t {limit} --parsable"
        request = replace(
            request, name="sys/dashboard/sys/jupyter", launch="batch", line=line, workdir=workdir
        )
        if "finetune" in user.apps:
            request = replace(request, partition="gpu", cpus=8, memory=60_000, gpus=1, model="a100")
    elif kind < 0.8:
        line = f"srun --partition=interactive -c 4 --time={limit} --pty bash"
        request = replace(request, name="bash", launch="srun", line=line)
    if not ended and rng.random() < 0.3:
        request = replace(request, state=f"CANCELLED by {user.uid}")
    return [Chain(submit, (request,))]


def trial(rng: random.Random, user: User, submit: int) -> list[Chain]:
    """A short test on the debug partition; one in twelve forgets its half-hour limit."""
    wall = rng.random() < 0.08
    request = Request(
        user, "debug", "test", f"/home/{user.login}/src", "sbatch -p debug -t 30 test.sh",
        8, 16_000, 30, over(rng, 0.5) if wall else rng.randint(5, 1500),
        "TIMEOUT" if wall else "COMPLETED", lag=rng.randint(1, 9),
    )  # fmt: skip
    if not wall and rng.random() < 0.3:
        request = replace(request, state="FAILED", exit_code="1:0", run=rng.randint(2, 90))
    return [Chain(submit, (request,))]


def withdrawn(rng: random.Random, user: User, submit: int) -> list[Chain]:
    """A job cancelled while it waited; without --time its limit is the partition's."""
    app = APPS[rng.choice(user.apps)]
    base = basic(rng, user, app, rng.choice(app.names), f"/scratch/{user.account}/{user.login}")
    minutes = rng.choice((None, app.limits[-1] * 60))
    state = f"CANCELLED by {user.uid}"
    request = replace(base, minutes=minutes, state=state, run=rng.randint(20, DAY), split="never")
    return [Chain(submit, (request,))]


def daily_life(rng: random.Random, users: tuple[User, ...], days: int) -> Iterator[Chain]:
    """Everything that is not one of the stories below."""
    arrays = itertools.count(1)
    weights = [user.weight for user in users]
    span = days * DAY + WARM_UP
    for _ in range(DECISIONS_A_DAY * span // DAY):
        user = rng.choices(users, weights)[0]
        submit = working_moment(rng, BEGIN - WARM_UP, BEGIN + days * DAY)
        draw = rng.random()
        if draw < 0.09:
            yield from session(rng, rng.choice(users), submit)
        elif draw < 0.17:
            yield from trial(rng, user, submit)
        elif draw < 0.20:
            yield from withdrawn(rng, user, submit)
        else:
            yield from batch_work(rng, user, submit, arrays)


# --- stories that every export tells ------------------------------------------------------------


def outage(days: int) -> tuple[int, int]:
    """Start and end of the maintenance: twelve hours from six in the morning."""
    start = BEGIN + (days * 53 // 100) * DAY + 6 * HOUR
    return start, start + 12 * HOUR


def story_time(rng: random.Random, days: int, share: float) -> int:
    """A moment of the working hours, after `share` of the days."""
    return BEGIN + int(days * share) * DAY + rng.randint(8 * HOUR, 17 * HOUR)


def story(user: User, name: str, cpus: int, hours: int, line: str) -> Request:
    """A request on the cpu partition under a name of its own."""
    line = f"sbatch {line}--time={clock(hours * HOUR)} {name}.sbatch"
    workdir = f"/scratch/{user.account}/{user.login}/{name}"
    memory = 3_000 * cpus
    return Request(user, "cpu", name, workdir, line, cpus, memory, hours * 60, hours * HOUR // 2)


def escalations(rng: random.Random, users: tuple[User, ...], days: int) -> Iterator[Chain]:
    """8 hours, then a day, then three days: the same work asked for again with more time."""
    for index, user in enumerate(users[4:40:6], 1):
        attempts = []
        for hours in (8, 24, 72):
            base = story(user, f"hessian_{index:02d}", 64, hours, "")
            wait, run = second_thoughts(rng), over(rng, hours)
            attempts.append(replace(base, state="TIMEOUT", run=run, link="resubmit", delay=wait))
        last = replace(attempts[2], state="COMPLETED", run=int(rng.uniform(26, 60) * HOUR))
        chain = [replace(r, nodes=1 + index % 2, step="python hessian.py") for r in attempts[:2]]
        chain.append(replace(last, nodes=1 + index % 2, step="python hessian.py"))
        yield Chain(story_time(rng, days, index / 9), tuple(chain))


def wrong_array(rng: random.Random, user: User, days: int) -> Iterator[Chain]:
    """Forty tasks with one wrong limit: forty walls, one cause."""
    base = story(user, "sweep_kappa", 16, 4, "--array=1-40 ")
    submit = story_time(rng, days, 0.3)
    for task in range(1, 41):
        run, lag = over(rng, 4), rng.randint(1, 29)
        yield Chain(submit, (replace(
            base, state="TIMEOUT", array=NEVER, task=str(task), run=run, lag=lag
        ),))  # fmt: skip


def reservation_end(rng: random.Random, user: User, days: int) -> Iterator[Chain]:
    """Jobs of a reservation that ends when the maintenance begins, far below their limits."""
    start, _ = outage(days)
    base = story(user, "scaling", 32, 72, "--reservation=before_maint ")
    for number in range(1, 16):
        request = replace(
            base, name=f"scaling_{number:02d}", state="TIMEOUT", until=start + 11,
            reservation="before_maint", step="python scaling.py", lag=rng.randint(1, 29),
        )  # fmt: skip
        yield Chain(start - rng.randint(18 * HOUR, 30 * HOUR), (request,))


def shapes(rng: random.Random, user: User, days: int) -> Iterator[Chain]:
    """Two het jobs (one at its wall), a job that gave nodes back, an array that still waits."""
    het = replace(story(user, "coupled", 64, 6, ""), nodes=3, step="ocean.exe", split="het")
    yield Chain(story_time(rng, days, 0.2), (het,))
    walled = replace(het, run=over(rng, 6), state="TIMEOUT")
    yield Chain(story_time(rng, days, 0.4), (walled,))
    shrunk = replace(story(user, "mesh_adapt", 64, 6, ""), nodes=4, split="resize")
    yield Chain(story_time(rng, days, 0.6), (shrunk,))
    waiting = story(user, "ensemble", 64, 6, "--array=1-60%8 --begin=now+2days ")
    waiting = replace(waiting, split="pending", array=NEVER + 1, task="[1-60%8]")
    yield Chain(BEGIN + days * DAY - 3 * HOUR, (waiting,))


def hostile_names(rng: random.Random, user: User, days: int) -> Iterator[Chain]:
    """Names that people really give, and that a simple split of a line does not survive."""
    base = story(user, "misc", 4, 2, "")
    walled = replace(base, state="TIMEOUT", run=over(rng, 2))
    wrapped = replace(base, line="sbatch --time=02:00:00 --wrap=zcat reads.fq.gz | wc -l")
    cases = (
        replace(walled, name="fold|3|lr=1e-3"),
        replace(walled, name="post\nprocess"),
        replace(base, name='<script>alert("x")</script>'),
        replace(base, name="Übergang_07"),
        replace(wrapped, name="wrap"),
    )
    for index, request in enumerate(cases, 2):
        yield Chain(story_time(rng, days, index / 8), (request,))


def plan(seed: int, days: int) -> list[Chain]:
    """All chains of submissions, in order of their first one."""
    rng = random.Random(seed)  # noqa: S311 - the same data each time is the point
    users = people(rng)
    chains = [
        *daily_life(rng, users, days),
        *escalations(rng, users, days),
        *wrong_array(rng, users[13], days),
        *reservation_end(rng, users[7], days),
        *shapes(rng, users[17], days),
        *hostile_names(rng, users[21], days),
    ]
    return sorted(chains, key=lambda chain: chain.submit)


# --- placing: when and where each request runs --------------------------------------------------


class Placed(NamedTuple):
    """A request with its times and nodes; start is None where it never had any."""

    chain: int
    request: Request
    submit: int
    eligible: int
    start: int | None
    end: int
    nodes: tuple[str, ...] = ()


class Busy(NamedTuple):
    """A part of a node that is taken for a time."""

    start: int
    end: int
    cpus: int
    memory: int
    gpus: int


class Schedule:
    """Who holds what on each node, from now on."""

    def __init__(self, days: int) -> None:
        self.days = days
        self.nodes: dict[str, list[tuple[Node, list[Busy]]]] = {}
        for node in NODES:
            self.nodes.setdefault(node.partition + node.model, []).append((node, []))

    def place(self, request: Request, eligible: int) -> tuple[int, int, tuple[str, ...]]:
        """Take the earliest room for `request`; returns start, end and the node names."""
        pool = self.nodes[request.partition + request.model]
        for _, held in pool:
            held[:] = [busy for busy in held if busy.end > eligible]
        ends = {busy.end for _, held in pool for busy in held} | {outage(self.days)[1]}
        for moment in (eligible, *sorted(end for end in ends if end > eligible)):
            start = moment + request.lag
            end = request.until or start + request.run
            free = [item for item in pool if room(*item, request, start, end)]
            if len(free) >= request.nodes and self.allowed(request, start):
                for _, held in free[: request.nodes]:
                    held.append(Busy(start, end, request.cpus, request.memory, request.gpus))
                return start, end, tuple(node.name for node, _ in free[: request.nodes])
        raise ValueError(f"no node is large enough for {request.name}")

    def allowed(self, request: Request, start: int) -> bool:
        """Slurm starts nothing that could run into the maintenance by its limit."""
        begin, end = outage(self.days)
        latest = start + 60 * (request.minutes or 0)
        return bool(request.until) or start >= end or latest <= begin


def room(node: Node, held: list[Busy], request: Request, start: int, end: int) -> bool:
    """Whether `request` fits beside all that is held at any time from `start` to `end`."""
    cpus, memory, gpus = request.cpus, request.memory, request.gpus
    for busy in held:
        if busy.start < end and start < busy.end:
            cpus, memory, gpus = cpus + busy.cpus, memory + busy.memory, gpus + busy.gpus
    return cpus <= node.cpus and memory <= node.memory and gpus <= node.gpus


def next_times(request: Request, done: Placed, now: int) -> tuple[int, int] | None:
    """Submit and eligible time of the request after `done`, or None where it is not made yet."""
    if request.link == "afterany":
        return done.submit + 2, done.end if done.end <= now else NEVER
    if done.end > now:
        return None
    if request.link == "requeue":
        return done.end + 2, done.end + 123
    return done.end + request.delay, done.end + request.delay


def place_all(chains: list[Chain], days: int) -> list[Placed]:
    """Run the plan: each request in order of the time from which it may start."""
    now, schedule = BEGIN + days * DAY, Schedule(days)
    done: list[Placed] = []
    queue = [(chain.submit, index, 0, chain.submit) for index, chain in enumerate(chains)]
    heapq.heapify(queue)
    while queue:
        eligible, index, position, submit = heapq.heappop(queue)
        requests = chains[index].requests
        asked = Placed(index, requests[position], submit, eligible, None, NEVER)
        placed = settle(schedule, asked, now)
        done.append(placed)
        if position + 1 < len(requests):
            times = next_times(requests[position + 1], placed, now)
            if times is not None and times[0] < now:
                heapq.heappush(queue, (times[1], index, position + 1, times[0]))
    return done


def settle(schedule: Schedule, placed: Placed, now: int) -> Placed:
    """`placed` with its times, unless the request still waits at `now`."""
    request = placed.request
    if request.split == "never":
        return placed._replace(end=placed.submit + request.run)
    if request.split == "pending" or placed.eligible == NEVER:
        return placed._replace(eligible=NEVER)
    start, end, nodes = schedule.place(request, placed.eligible)
    if start > now:
        return placed
    return placed._replace(start=start, end=end, nodes=nodes)


# --- records: what slurmdbd keeps ---------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """One allocation row, before it is printed."""

    job: str
    raw: int
    request: Request
    state: str
    submit: int
    eligible: int
    start: int | None
    end: int
    nodes: tuple[str, ...]
    line: str

    @property
    def hours(self) -> float:
        """Node-hours."""
        return len(self.nodes) * (self.end - (self.start or 0)) / HOUR if self.nodes else 0.0


def split(record: Record) -> list[Record]:
    """A het job has a record for each component, a resized job one for each size."""
    if record.request.split == "het":
        leader = replace(record, job=f"{record.job}+0", nodes=record.nodes[:1])
        return [
            leader,
            replace(leader, job=f"{record.raw}+1", raw=record.raw + 1, nodes=record.nodes[1:]),
        ]
    if record.request.split == "resize" and record.start is not None and record.end < NEVER:
        # Slurm gives the second record the time of the resize as its Submit and Eligible too.
        at = (record.start + record.end) // 2
        rest = replace(record, submit=at, eligible=at, start=at, nodes=record.nodes[:2])
        return [replace(record, state="RESIZING", end=at), rest]
    return [record]


@lru_cache(maxsize=4)
def runs(seed: int, days: int) -> tuple[tuple[Record, ...], ...]:
    """Every run that ended in the window or later, as its records, with job ids."""
    placed = place_all(plan(seed, days), days)
    numbered = number(sorted(placed, key=lambda item: (item.submit, item.chain)))
    now = BEGIN + days * DAY
    return tuple(
        tuple(split(record_of(item, job, raw, line, now)))
        for item, job, raw, line in numbered
        if item.end > BEGIN
    )


def number(placed: list[Placed]) -> Iterator[tuple[Placed, str, int, str]]:
    """Give out job ids in order of submission; with JobID, JobIDRaw and SubmitLine."""
    sizes = Counter(item.request.array for item in placed)
    free, seen, last = FIRST_JOB, dict[int, tuple[int, Iterator[int]]](), dict[int, int]()
    for item in placed:
        request, before = item.request, last.get(item.chain, 0)
        raw, width = free, 2 if request.split == "het" else 1
        job = str(raw)
        if request.link == "requeue":
            raw, job, width = before, str(before), 0
        elif request.array:
            width = 0 if request.array in seen else sizes[request.array]
            base, places = seen.setdefault(request.array, (free, itertools.count(1)))
            # The last task to start keeps the id of the array itself.
            raw, job = base + next(places) % sizes[request.array], f"{base}_{request.task}"
        free += width
        last[item.chain] = raw
        yield item, job, raw, request.line.replace("{after}", str(before))


def record_of(item: Placed, job: str, raw: int, line: str, now: int) -> Record:
    """The record of `item` as it stands at `now`."""
    state, end = item.request.state, item.end
    if end > now:
        state, end = "PENDING" if item.start is None else "RUNNING", NEVER
    return Record(
        job, raw, item.request, state, item.submit, item.eligible, item.start, end, item.nodes, line
    )


# --- printing -----------------------------------------------------------------------------------


def clock(seconds: int) -> str:
    """[D-]HH:MM:SS."""
    days, rest = divmod(seconds, DAY)
    text = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def stamp(moment: int) -> str:
    """A time as sacct prints it, in UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def hostlist(names: tuple[str, ...]) -> str:
    """`hc[001-003,007]` for names that share a two-letter prefix."""
    if len(names) < 2:
        return "".join(names) or "None assigned"
    numbers = sorted(int(name[2:]) for name in names)
    groups = itertools.groupby(enumerate(numbers), lambda item: item[1] - item[0])
    blocks = [[number for _, number in group] for _, group in groups]
    spans = [f"{b[0]:03d}" if len(b) == 1 else f"{b[0]:03d}-{b[-1]:03d}" for b in blocks]
    return f"{names[0][:2]}[{','.join(spans)}]"


def tres(request: Request, nodes: int, billing: bool) -> str:
    """The trackable resources of `nodes` nodes in sacct's order."""
    gpus = request.gpus * nodes
    items = [f"billing={request.cpus * nodes + 16 * gpus}"] if billing else []
    items.append(f"cpu={request.cpus * nodes}")
    if gpus:
        items += [f"gres/gpu:{request.model}={gpus}", f"gres/gpu={gpus}"]
    return ",".join([*items, f"mem={request.memory * nodes}M", f"node={nodes}"])


def job_row(record: Record, now: int) -> str:
    """The allocation's row."""
    request, nodes = record.request, len(record.nodes)
    waiting = "Unknown" if record.state == "PENDING" else "None"
    end = min(record.end, now)
    elapsed = end - record.start if record.start is not None else 0
    limit = request.minutes
    asked = nodes or request.nodes
    return "|".join((
        record.job, str(record.raw), "heron", request.user.login, request.user.account,
        request.partition, request.qos or quality(request), record.state,
        request.exit_code if record.state != "RUNNING" else "0:0",
        stamp(record.submit), stamp(record.eligible) if record.eligible < NEVER else "Unknown",
        stamp(record.start) if record.start is not None else waiting,
        stamp(record.end) if record.end < NEVER else "Unknown",
        clock(elapsed), str(elapsed), "00:00:00",
        clock(60 * limit) if limit is not None else "Partition_Limit",
        str(limit) if limit is not None else "Partition_Limit",
        str(asked), str(request.cpus * nodes), f"{request.memory * asked}M",
        tres(request, nodes, billing=True) if nodes else "", tres(request, asked, billing=True),
        flags(record), hostlist(record.nodes), request.reservation, request.workdir, record.line,
        request.name,
    ))  # fmt: skip


def quality(request: Request) -> str:
    """The QOS a partition gives by default."""
    return request.partition if request.partition in ("long", "gpu", "debug") else "normal"


def flags(record: Record) -> str:
    """Which part of the scheduler started the job."""
    if record.start is None:
        return "None"
    return f"{'SchedMain' if record.raw % 3 else 'SchedBackfill'},StartReceived"


class Step(NamedTuple):
    """One step of a job: its place in the record, its end and how it ended."""

    suffix: str
    name: str
    state: str
    exit_code: str
    start: int
    end: int
    nodes: tuple[str, ...]
    line: str = ""


def step_end(record: Record) -> tuple[str, str]:
    """State and exit code of the steps that did the work."""
    if record.state in ("TIMEOUT", "PREEMPTED", "REQUEUED") or record.state.startswith("CANCEL"):
        return "CANCELLED", "0:15"
    if record.state == "RESIZING":
        return "COMPLETED", "0:0"
    return record.state, record.request.exit_code if record.state != "RUNNING" else "0:0"


def steps(record: Record) -> Iterator[Step]:
    """The steps of a record that started: batch or interactive, extern, and sruns."""
    if record.start is None:
        return
    request, start, end = record.request, record.start, record.end
    state, code = step_end(record)
    if record.state == "TIMEOUT":
        end += record.raw % 31
    head, first = record.nodes[:1], not record.job.endswith("+1")
    if request.launch == "batch" and first:
        yield Step("batch", "batch", state, code, start, end, head)
    elif request.launch == "salloc":
        line = "srun --interactive --preserve-env --pty /bin/bash"
        killed = "0:9" if code == "0:15" else code
        yield Step("interactive", "interactive", state, killed, start, end, head, line)
    plain = record.state if record.state in ("RUNNING", "NODE_FAIL") else "COMPLETED"
    yield Step("extern", "extern", plain, "0:0", start, record.end, record.nodes)
    command = "bash" if request.launch == "srun" else request.step
    if command and record.end - start > 5:
        line = request.line if request.launch == "srun" else f"srun {command}"
        name = command.split()[0]
        yield Step("0", name, state, code, start + 2, record.end, record.nodes, line)


def step_row(record: Record, step: Step, now: int) -> str:
    """A step's row: what belongs to the job alone is empty."""
    elapsed = (step.end if record.end < NEVER else now) - step.start
    nodes = len(step.nodes)
    return "|".join((
        f"{record.job}.{step.suffix}", f"{record.raw}.{step.suffix}", "heron", "",
        record.request.user.account, "", "", step.state, step.exit_code, stamp(step.start),
        stamp(step.start), stamp(step.start),
        stamp(step.end) if record.end < NEVER else "Unknown", clock(elapsed), str(elapsed),
        "00:00:00", "", "", str(nodes), str(record.request.cpus * nodes), "",
        tres(record.request, nodes, billing=step.suffix == "extern"), "", "", hostlist(step.nodes),
        "", "", step.line, step.name,
    ))  # fmt: skip


def records(seed: int, days: int) -> tuple[Record, ...]:
    """All records as slurmdbd orders them: by job id, the newest submission first."""
    flat = (record for run in runs(seed, days) for record in run)
    return tuple(sorted(flat, key=lambda record: (record.raw, -record.submit)))


def lines(seed: int, days: int) -> Iterator[str]:
    """The export's logical rows, header first."""
    now = BEGIN + days * DAY
    yield HEADER
    for record in records(seed, days):
        yield job_row(record, now)
        for step in steps(record):
            yield step_row(record, step, now)


def write(path: Path, seed: int = 7, days: int = 90) -> None:
    """Write the export; the same `seed` and `days` give the same bytes."""
    path.write_bytes("".join(f"{line}\n" for line in lines(seed, days)).encode())


def write_nodes(path: Path) -> None:
    """Write the node sizes as `node,cpus,memory_mb,gpus`."""
    rows = [f"{node.name},{node.cpus},{node.memory},{node.gpus}" for node in NODES]
    path.write_text("\n".join(["node,cpus,memory_mb,gpus", *rows, ""]), encoding="utf-8")


# --- the truth about the file -------------------------------------------------------------------


class Usage(TypedDict):
    """A number of runs and what they used."""

    runs: int
    records: int
    node_hours: float
    cpu_hours: float
    gpu_hours: float


class Truth(TypedDict):
    """What a correct reader finds; `rows` = `ended_records` + the sum of `left_out`."""

    rows: int
    ended_records: int
    left_out: dict[str, int]
    malformed_rows: int
    repeated_ids: int
    total: Usage
    by_state: dict[str, Usage]
    timeout_at_wall: Usage
    timeout_at_wall_sessions: Usage
    timeout_before_wall: Usage


def usage(chosen: list[tuple[Record, ...]]) -> Usage:
    """The sums over some runs."""
    flat = [record for run in chosen for record in run]
    return Usage(
        runs=len(chosen),
        records=len(flat),
        node_hours=sum(r.hours for r in flat),
        cpu_hours=sum(r.hours * r.request.cpus for r in flat),
        gpu_hours=sum(r.hours * r.request.gpus for r in flat),
    )


def at_wall(run: tuple[Record, ...]) -> bool:
    """Slurm ended it because its limit was reached."""
    first, last = run[0], run[-1]
    elapsed = last.end - (first.start or 0)
    return last.state == "TIMEOUT" and elapsed >= 60 * (last.request.minutes or 0)


def base_state(run: tuple[Record, ...]) -> str:
    """The state of a run without the uid of whoever cancelled it."""
    return run[-1].state.split()[0]


def truth(seed: int = 7, days: int = 90) -> Truth:
    """The figures of the export, counted on the plan and not on the printed rows."""
    everything = runs(seed, days)
    flat = [record for run in everything for record in run]
    ended = [run for run in everything if run[0].start is not None and run[-1].end < NEVER]
    states = sorted({base_state(run) for run in ended})
    walls = [run for run in ended if at_wall(run)]
    early = [run for run in ended if run[-1].state == "TIMEOUT" and not at_wall(run)]
    printed = {"step": sum(1 for record in flat for _ in steps(record))}
    for reason, state in (("pending", "PENDING"), ("running", "RUNNING")):
        printed[reason] = sum(record.state == state for record in flat)
    printed["never started"] = sum(r.start is None and r.state != "PENDING" for r in flat)
    texts = [(r.request.name, r.line, r.request.workdir) for r in flat]
    return Truth(
        rows=len(flat) + printed["step"],
        ended_records=sum(len(run) for run in ended),
        left_out=printed,
        malformed_rows=sum(any("|" in text or "\n" in text for text in row) for row in texts),
        repeated_ids=sum(n > 1 for n in Counter(run[0].raw for run in everything).values()),
        total=usage(ended),
        by_state={name: usage([r for r in ended if base_state(r) == name]) for name in states},
        timeout_at_wall=usage(walls),
        timeout_at_wall_sessions=usage([run for run in walls if run[0].request.session]),
        timeout_before_wall=usage(early),
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--nodes", type=Path, help="write the node sizes to this file as well")
    arguments = parser.parse_args()
    write(arguments.out, arguments.seed, arguments.days)
    if arguments.nodes:
        write_nodes(arguments.nodes)


if __name__ == "__main__":
    main()
