"""Which application a run was: what must be recognised, and what must not."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cedana_poc.applications import (
    CATALOGUE,
    UNRECOGNISED,
    Checkpointing,
    Recognition,
    markdown_table,
    recognise,
)

DOCUMENT = Path(__file__).parents[1] / "docs" / "applications.md"
CLASS_OF = {entry.application.name: entry.application.checkpointing for entry in CATALOGUE}
NOTHING = UNRECOGNISED.name
TAKES_HOURS_OUT = {Checkpointing.DEFAULT, Checkpointing.SESSION}


def of_line(submit_line: str, *, steps: tuple[str, ...] = (), job_name: str = "") -> Recognition:
    return recognise(submit_line, steps, job_name, "/home/u")


def of_steps(*names: str) -> Recognition:
    return recognise("", ("batch", "extern", *names), "job", "/home/u")


def of_job(job_name: str, partition: str = "") -> Recognition:
    return recognise("", (), job_name, "/home/u", partition)


# ------------------------------------------------------------------------------------ submit lines

PROGRAMS = [
    ("srun gmx_mpi mdrun -deffnm npt -maxh 23.5", "GROMACS"),
    ("srun -n 64 --mpi=pmix -c 4 /opt/gromacs/2023/bin/gmx_mpi mdrun -s md.tpr", "GROMACS"),
    ("srun --ntasks 8 --cpus-per-task 4 gmx mdrun -cpi state.cpt", "GROMACS"),
    ("srun -N2 -n64 --exclusive mdrun_mpi -v", "GROMACS"),
    ("srun gmx trjconv -f md.xtc -o out.xtc", "GROMACS tools"),
    ("srun -W 0 -K1 gmx_mpi grompp -f md.mdp", "GROMACS tools"),
    ("srun --cpu-bind=cores -N 4 lmp -in in.melt", "LAMMPS"),
    ("srun lmp_kokkos_cuda_mpi -k on g 4 -sf kk -in in.lj", "LAMMPS"),
    ("srun --overlap --gpus 4 namd3 +p8 +devices 0,1,2,3 stmv.namd", "NAMD"),
    ("srun pmemd.cuda -O -i mdin -o mdout", "AMBER"),
    ("srun -t 24:00:00 --mem 0 vasp_std", "VASP"),
    ("/usr/bin/srun --mpi=pmi2 pw.x -nk 4 -in scf.in", "Quantum ESPRESSO"),
    ("srun cp2k.psmp -i md.inp -o md.out", "CP2K"),
    ("srun -n1 g16 job.com", "Gaussian"),
    ("srun /opt/orca/5.0.4/orca job.inp", "ORCA"),
    ("srun simpleFoam -parallel", "OpenFOAM"),
    ("srun -n 128 /home/u/OpenFOAM/u-v2206/platforms/bin/myReactingFoam -parallel", "OpenFOAM"),
    ("srun snappyHexMesh -overwrite -parallel", "OpenFOAM tools"),
    ("srun --wait 60 ./wrf.exe", "WRF"),
    ("srun starccm+ -batch run.java case.sim", "STAR-CCM+"),
    ("srun relion_refine_mpi --o Refine3D/job012/run --continue x", "RELION refinement"),
    ("srun relion_run_motioncorr_mpi --i in.star", "RELION"),
    ("srun iqtree2 -s a.phy -m MFP", "IQ-TREE"),
    ("srun STAR --runThreadN 16 --genomeDir g", "STAR aligner"),
    ("srun blastp -query q.fa -db nr", "BLAST and DIAMOND"),
    ("srun java -Xmx32g -jar /opt/picard/picard.jar MarkDuplicates", "Picard"),
    ("srun torchrun --nproc_per_node=8 train.py", "PyTorch (torchrun)"),
    ("srun python -u -m torch.distributed.run --nnodes 4 train.py", "PyTorch (torchrun)"),
    ("srun python3 -m deepspeed.launcher.runner train.py", "DeepSpeed"),
    ("srun accelerate launch --num_processes 8 finetune.py", "Accelerate"),
    ("srun python train_lightning.py --epochs 100", "PyTorch Lightning"),
    ("srun python /env/bin/snakemake -j 100", "Snakemake"),
    ("srun -n1 python train.py --lr 0.1", "Python script"),
    ("srun python -c 'import gromacs'", "Python script"),
    ("srun Rscript fit.R", "R script"),
    ("srun matlab -nodisplay -batch main", "Matlab"),
    ("srun julia --project=. solve.jl", "Julia"),
    ("salloc -N 4 -t 60 gmx_mpi mdrun -deffnm md", "GROMACS"),
    ("salloc -N 4 srun -n 4 lmp -in in.lj", "LAMMPS"),
]

THROUGH_LAUNCHERS = [
    ("srun env OMP_NUM_THREADS=4 gmx_mpi mdrun -ntomp 4", "GROMACS"),
    ("srun time -p numactl -m 0 -C 0-15 cp2k.popt in.inp", "CP2K"),
    ("srun timeout 23h lmp -in in.lj", "LAMMPS"),
    ("srun timeout 82800 lmp -in in.lj", "LAMMPS"),
    ("srun singularity exec --nv -B /scratch gromacs.sif gmx mdrun -deffnm md", "GROMACS"),
    ("srun apptainer run --bind /data lammps.sif lmp -in in.lj", "LAMMPS"),
    ("srun conda run -n md python relax.py", "Python script"),
    ("srun nsys profile -o trace lmp -in in.lj", "LAMMPS"),
    ("srun bash -c cd /scratch && gmx_mpi mdrun -deffnm md", "GROMACS"),
    ("srun bash -euo pipefail -c lmp -in in.lj", "LAMMPS"),
    ("srun -n 4 -- lmp -in in.lj", "LAMMPS"),
    ("srun bash ./run_vasp.sh", "VASP"),
]

WRAPPED = [
    ("sbatch -J a -t 60 --wrap=gmx mdrun -deffnm md", "GROMACS"),
    ("sbatch --wrap gmx mdrun -deffnm md", "GROMACS"),
    ('sbatch --wrap="mpirun -np 64 --bind-to core -x PATH vasp_std > out"', "VASP"),
    ("sbatch --wrap=module load openfoam; mpirun -np 64 pimpleFoam -parallel", "OpenFOAM"),
    (
        "sbatch -p cpu --wrap=cd /scratch/x && mpiexec -n 8 pw.x -in a.in | tee log",
        "Quantum ESPRESSO",
    ),
    ("sbatch --wrap=mpirun --mca btl self,tcp -genv A 1 nwchem job.nw", "NWChem"),
    ("sbatch --wrap=python prepare.py && lmp -in in.lj", "LAMMPS"),
    ("sbatch --wrap=gmx grompp -f md.mdp && gmx mdrun -deffnm topol", "GROMACS"),
    ("sbatch --wrap=blockMesh; mpirun -np 8 simpleFoam; reconstructPar", "OpenFOAM"),
    ("sbatch --wrap=gmx mdrun -deffnm md; lmp -in in.lj", "LAMMPS"),
    ("sbatch --wrap=OMP_NUM_THREADS=4 Rscript fit.R", "R script"),
    ("sbatch --wrap=bwa mem ref.fa r1.fq r2.fq | samtools sort -o x.bam", "BWA"),
    (
        "sbatch --job-name 59b3d4de --wrap=/env/bin/python3.12 -m snakemake --snakefile S",
        "Snakemake",
    ),
    ("sbatch --wrap=singularity exec img.sif bash -c 'gmx mdrun -s a.tpr'", "GROMACS"),
    ("sbatch --wrap=jupyter nbconvert --execute a.ipynb", "Python script"),
    ("sbatch --wrap=papermill in.ipynb out.ipynb", "Python script"),
    ("sbatch --wrap=jupyter lab --no-browser --port 8888", "Jupyter"),
    ("sbatch --wrap=sleep infinity", "Idle allocation"),
]

SCRIPTS = [
    ("sbatch run_gromacs.sh", "GROMACS"),
    ("sbatch -A proj -p gpu --gres=gpu:4 -t 24:00:00 /home/u/md/gromacs2023_npt.slurm", "GROMACS"),
    ("sbatch --dependency afterany:123 --array 1-10%2 lammps-run.job a b c", "LAMMPS"),
    ("sbatch --wait namd3.sbatch", "NAMD"),
    ("sbatch -W --exclusive --x11 cp2k.sh", "CP2K"),
    ("sbatch submit-cp2k.sh", "CP2K"),
    ("sbatch run.vasp.6.4.sh", "VASP"),
    ("sbatch star-ccm.sh", "STAR-CCM+"),
    ("sbatch ls-dyna_crash.sh", "LS-DYNA"),
    ("sbatch raxml-ng.sh", "RAxML-NG"),
    ("sbatch raxml.sh", "RAxML"),
    ("sbatch orca_opt_mol3.sh", "ORCA"),
    ("sbatch --hold --parsable snakejob.align.12.sh", "Snakemake"),
    ("sbatch .command.run", "Nextflow"),
    ("sbatch --time 12:00:00 -p regular .case.run --resubmit", "CESM and E3SM"),
    ("sbatch /home/u/log/submission_file_ab12cd.sh", "submitit"),
    ("sbatch run_glue.py", "Python script"),
    ("sbatch analysis.R", "R script"),
    ("sbatch start_jupyter.sh", "Jupyter"),
    ("sbatch rstudio-server.job", "RStudio"),
    ("sbatch run_gatk_analysis.sh", "GATK"),
]


@pytest.mark.parametrize(("line", "name"), [*PROGRAMS, *THROUGH_LAUNCHERS, *WRAPPED, *SCRIPTS])
def test_submit_line_names_the_application(line: str, name: str) -> None:
    assert (name, "submit line") == (of_line(line).application.name, of_line(line).evidence)


NOT_IN_LINE = [
    "sbatch run_foamy.sh",
    "sbatch flash_attention_train.sh",
    "srun real.exe",
    "srun ./mb",
    "sbatch mb.sh",
    "sbatch orca_whale_detection.sh",
    "sbatch star_formation.sh",
    "sbatch swift_test.sh",
    "sbatch amber_alert.sh",
    "sbatch blast_wave.sh",
    "sbatch gaussian_process.sh",
    "sbatch nemo_asr.sh",
    "sbatch plot_gromacs.sh",
    "sbatch compile-gromacs.sh",
    "sbatch openfoam_postprocessing.sh",
    "sbatch jupyter_install.sh",
    "sbatch mygromacsrun.sh",
    "sbatch interactive_segmentation.sh",
    "sbatch bash.sh",
    "sbatch ./interactive",
    "sbatch vnc_tracing.sh",
    "sbatch /opt/gromacs/share/run.sh",
    "sbatch run.sh gmx mdrun",
    "sbatch -J gmx -A vasp -p lammps job.sh",
    "srun -J gmx_mpi ./solver",
    "srun ./solver gmx mdrun",
    "srun ./reorca",
    "srun gmx_MMPBSA -O -i in",
    "srun --comment simpleFoam ./solver",
    "srun conda install gromacs",
    "sbatch --wrap=./solver; sleep 600",
    "sbatch --wrap=echo gromacs",
    "sbatch --wrap=cp gromacs.tpr /scratch",
    "sbatch --wrap=bash",
    "srun ./tmux_like --x",
    "sinfo -p gromacs",
    "gmx mdrun",
    "sbatch",
    "srun",
    "",
]


@pytest.mark.parametrize("line", NOT_IN_LINE)
def test_submit_line_that_names_nothing_is_not_recognised(line: str) -> None:
    assert Recognition(UNRECOGNISED, "") == of_line(line)


PYTHON_ONLY = [
    "sbatch wrf_plot.py",
    "sbatch gromacs_analysis.py",
    "sbatch run_gromacs.py",
    "srun python vasp_to_cp2k.py",
    "srun python -u simpleFoam.py",
    "srun python compare.py gmx mdrun",
    "srun python lightning_strikes.py",
    "srun python run_gromacs",
    "sbatch jupyter_like.py",
    "srun python lmp_data.py",
    "srun relion_star_merge.py",
    "sbatch --wrap=python -m mymodel.train --data imagenet",
]


@pytest.mark.parametrize("line", PYTHON_ONLY)
def test_script_about_an_application_is_only_a_script(line: str) -> None:
    assert Checkpointing.NONE is of_line(line).application.checkpointing
    assert "Python script" == of_line(line).application.name


# --------------------------------------------------------------------------------------- sessions

SESSION_LINES = [
    "salloc",
    "salloc -N 1 -t 4:00:00 --gres gpu:1",
    "salloc bash",
    "salloc -p gpu srun --pty bash -i",
    "srun --pty bash",
    "srun -p gpu --gres=gpu:1 -t 8:00:00 --pty /bin/bash -l",
    "srun --mem 16G --pty zsh",
    "srun --pty python",
    "srun --pty R --no-save",
    "srun --x11 matlab -desktop",
    "srun --pty singularity shell --nv img.sif",
    "srun --pty tmux",
    "srun jupyter-lab --ip 0.0.0.0",
    "srun code-server --bind-addr 0.0.0.0:8080",
]


@pytest.mark.parametrize("line", SESSION_LINES)
def test_someone_at_a_prompt_is_a_session(line: str) -> None:
    assert Checkpointing.SESSION is of_line(line).application.checkpointing


NO_SESSION_LINES = [
    "salloc --no-shell -N 1",
    "salloc -N1 ./run_all.sh",
    "srun --pty ./simulate",
    "srun --pty python train.py",
    "srun --pty matlab -batch main",
    "srun --pty R --file=fit.R",
    "srun --pty bash run.sh",
    "srun python",
    "srun sh ./steps/all",
    "sbatch --wrap=tmux new -d ./simulate",
    "srun ./screen --ligands a.smi",
]


@pytest.mark.parametrize("line", NO_SESSION_LINES)
def test_work_started_from_a_prompt_is_not_a_session(line: str) -> None:
    assert of_line(line).application.checkpointing not in TAKES_HOURS_OUT


SESSION_JOBS = [
    ("spawner-jupyterhub", "JupyterHub session"),
    ("jupyterhub", "JupyterHub session"),
    ("sys/dashboard/sys/jupyter", "Open OnDemand session"),
    ("ondemand/sys/dashboard/batch_connect/sys/bc_desktop", "Open OnDemand session"),
    ("sys/dashboard/batch_connect/dev/matlab", "Open OnDemand session"),
    ("jupyter", "Jupyter"),
    ("jupyter-notebook", "Jupyter"),
    ("jupyterlab_gpu2", "Jupyter"),
    ("rstudio", "RStudio"),
    ("code-server", "Remote desktop or editor"),
    ("vscode", "Remote desktop or editor"),
    ("vnc-desktop", "Remote desktop or editor"),
    ("interactive", "Interactive shell"),
    ("_interactive", "Interactive shell"),
    ("bash", "Interactive shell"),
    ("sh", "Interactive shell"),
    ("zsh", "Interactive shell"),
]


@pytest.mark.parametrize(("job_name", "name"), SESSION_JOBS)
def test_job_name_of_a_session_is_known(job_name: str, name: str) -> None:
    assert (name, "job name") == (of_job(job_name).application.name, of_job(job_name).evidence)
    assert Checkpointing.SESSION is of_job(job_name).application.checkpointing


NO_SESSION_JOBS = [
    "bash_tests", "shell", "push", "screen", "fish", "dash", "vnc", "interact", "wrap", "sbatch",
    "test", "run.sh", "bash.sh", "my_notebook", "jupyter_export", "ondemand/sys/myjobs/default/1",
    "interactive_segmentation", "human-interactive-train", "session", "Bash Bunny",
]  # fmt: skip


@pytest.mark.parametrize("job_name", NO_SESSION_JOBS)
def test_job_name_like_a_session_is_not_one(job_name: str) -> None:
    assert Checkpointing.SESSION is not of_job(job_name).application.checkpointing


def test_interactive_step_is_a_session_whatever_else_is_known() -> None:
    found = recognise(
        "salloc -N 4", ["interactive", "gmx_mpi"], "gromacs", "/x", has_interactive_step=True
    )
    assert (Checkpointing.SESSION, "step name") == (
        found.application.checkpointing,
        found.evidence,
    )


def test_bash_step_is_not_a_session() -> None:
    assert Recognition(UNRECOGNISED, "") == of_steps("bash")


@pytest.mark.parametrize("job_name", ["bash", "interactive", "sh"])
def test_shell_name_given_to_a_batch_script_is_not_a_session(job_name: str) -> None:
    assert "GROMACS" == of_line("sbatch -J bash run_gromacs.sh", job_name=job_name).application.name
    assert Recognition(UNRECOGNISED, "") == of_line("sbatch -J bash go.sh", job_name=job_name)


def test_shell_name_of_a_job_with_a_batch_step_is_not_a_session() -> None:
    """Without a submit line, a batch step still tells that sbatch was used."""
    assert Recognition(UNRECOGNISED, "") == recognise("", ["batch", "extern"], "bash", "")
    named = recognise("", ["batch", "extern", "lmp"], "interactive", "")
    assert ("LAMMPS", "step name") == (named.application.name, named.evidence)


def test_interactive_job_held_by_a_batch_step_is_a_session() -> None:
    """Sites' own interactive commands submit a script that only waits."""
    found = recognise("", ["batch"], "_interactive", "")
    assert Checkpointing.SESSION is found.application.checkpointing


def test_portal_name_is_stronger_than_the_submit_line() -> None:
    found = of_line("sbatch run.py", job_name="spawner-jupyterhub")
    assert ("JupyterHub session", "job name") == (found.application.name, found.evidence)


def test_portal_folder_is_a_session_under_any_job_name() -> None:
    folder = "/home/u/ondemand/data/sys/dashboard/batch_connect/sys/matlab/output/7d"
    found = recognise("sbatch --parsable", [], "my desktop work", folder)
    assert ("Open OnDemand session", "work directory") == (found.application.name, found.evidence)
    composed = recognise("sbatch main.sh", [], "a", "/home/u/ondemand/data/sys/myjobs/default/1")
    assert UNRECOGNISED == composed.application


def test_bare_language_in_a_portal_partition_is_a_session() -> None:
    assert Checkpointing.SESSION is of_job("matlab", "ondemand-gpu").application.checkpointing
    assert Checkpointing.NONE is of_job("matlab", "interactive").application.checkpointing
    scripted = recognise("sbatch main.sh", [], "matlab", "", "ondemand")
    assert Checkpointing.NONE is scripted.application.checkpointing


# ------------------------------------------------------------------------------------------- steps

STEPS = [
    (("gmx_mpi",), "GROMACS"),
    (("vasp_gam",), "VASP"),
    (("python3.12",), "Python script"),
    (("R",), "R script"),
    (("pmi_proxy", "hydra_pmi_proxy", "orted", "lmp"), "LAMMPS"),
    (("wrf.exe", "python"), "WRF"),
    (("real.exe", "wrf.exe"), "WRF"),
    (("gmx_mpi", "lmp"), "LAMMPS"),
    (("interFoam",), "OpenFOAM"),
    (("relion_refine_mpi",), "RELION refinement"),
    (("run_gromacs.sh",), "GROMACS"),
    (("jupyter-lab",), "Jupyter"),
]


@pytest.mark.parametrize(("steps", "name"), STEPS)
def test_step_names_tell_the_application(steps: tuple[str, ...], name: str) -> None:
    assert (name, "step name") == (of_steps(*steps).application.name, of_steps(*steps).evidence)


SILENT_STEPS = [
    "pmi_proxy", "hydra_pmi_proxy", "orted", "prted", "env", "bash", "srun", "sleep", "true",
    "real.exe", "mb", "a.out", "foamy", "orca_whale", "jupyter", "sirocco", "interactive", "sshd",
]  # fmt: skip


@pytest.mark.parametrize("step", SILENT_STEPS)
def test_launchers_and_helpers_tell_nothing(step: str) -> None:
    assert Recognition(UNRECOGNISED, "") == of_steps(step)


def test_what_ran_is_surer_than_what_the_script_is_called() -> None:
    found = of_line("sbatch run_gromacs_pipeline.sh", steps=("batch", "lmp"))
    assert ("LAMMPS", "step name") == (found.application.name, found.evidence)
    same = of_line("sbatch run_gromacs.sh", steps=("batch", "gmx_mpi"))
    assert ("GROMACS", "submit line") == (same.application.name, same.evidence)


def test_application_in_a_step_is_more_than_the_language_that_started_it() -> None:
    assert "LAMMPS" == of_line("sbatch drive.py", steps=("batch", "lmp")).application.name
    assert "VASP" == of_line("sbatch go_vasp.sh", steps=("batch", "python")).application.name


# --------------------------------------------------------------------------------------- job names

JOBS = [
    ("gromacs_npt_3", "GROMACS"),
    ("npt-gromacs.2024", "GROMACS"),
    ("cp2k", "CP2K"),
    ("simpleFoam", "OpenFOAM"),
    ("pw.x", "Quantum ESPRESSO"),
    ("vasp_std", "VASP"),
    ("g16_mol7", "Gaussian"),
    ("wrf.exe", "WRF"),
    ("nf-ALIGN_(sample1)", "Nextflow"),
    ("nf-NFCORE_RNASEQ_STAR_(S1)", "Nextflow"),
    ("snakejob.align.3.sh", "Snakemake"),
    ("cromwell_0a1b2c3d_align", "Cromwell and Toil"),
    ("dask-worker", "Pilot jobs (Dask, Parsl, FireWorks)"),
    ("parsl.htex.block-0.1699", "Pilot jobs (Dask, Parsl, FireWorks)"),
    ("cryosparc_P12_J345", "cryoSPARC"),
    ("train.py", "Python script"),
    ("matlab", "Matlab"),
    ("compare_gromacs_lammps", "LAMMPS"),
    ("run-star-ccm", "STAR-CCM+"),
]


@pytest.mark.parametrize(("job_name", "name"), JOBS)
def test_job_name_names_the_application(job_name: str, name: str) -> None:
    assert (name, "job name") == (of_job(job_name).application.name, of_job(job_name).evidence)


NO_APPLICATION_JOBS = [
    "foamy", "flash_attention_train", "orca", "orca-calls", "star", "STAR", "R", "r", "mb", "real",
    "real.exe", "swift", "athena", "amber", "enzo", "gizmo", "nemo", "icon", "beast", "flash",
    "gromacsish", "xgromacs", "batch", "nf-kappa-b", "lightning", "analyse_gromacs", "wrf-build",
    "59b3d4de-0a1b-4c2d-9e8f-001122334455", "123", "", "æøå", "gmx_mmpbsa",
]  # fmt: skip


@pytest.mark.parametrize("job_name", NO_APPLICATION_JOBS)
def test_job_name_with_another_meaning_is_not_an_application(job_name: str) -> None:
    assert Recognition(UNRECOGNISED, "") == of_job(job_name)


def test_script_of_the_submit_line_is_stronger_than_the_job_name() -> None:
    assert "Python script" == of_line("sbatch train.py", job_name="gromacs").application.name
    assert "Python script" == of_line("sbatch start.py", job_name="jupyter").application.name


# -------------------------------------------------------------------------------- work directories


def of_folder(path: str) -> Recognition:
    return recognise("sbatch run.sh", ["batch"], "job", path)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/scratch/u/gromacs/run1", "GROMACS"),
        ("/scratch/u/lammps-melt/7", "LAMMPS"),
        ("/data/gromacs/compare/cp2k_md", "CP2K"),
    ],
)
def test_work_directory_suggests_a_name_but_no_class(path: str, name: str) -> None:
    found = of_folder(path)
    assert (name, Checkpointing.UNKNOWN, "work directory") == (
        found.application.name,
        found.application.checkpointing,
        found.evidence,
    )


@pytest.mark.parametrize(
    "path",
    ["/home/u/foamy", "/home/u/jupyter", "/home/u/gromacs/analysis", "/home/u/matlab", "", "/"],
)
def test_work_directory_with_another_meaning_suggests_nothing(path: str) -> None:
    assert Recognition(UNRECOGNISED, "") == of_folder(path)


# ------------------------------------------------------------------------- the table and its speed


@given(st.text(), st.lists(st.text(max_size=20), max_size=4), st.text(), st.text(), st.text())
def test_no_text_raises(
    line: str, steps: list[str], job_name: str, work_dir: str, partition: str
) -> None:
    for start in ("", "sbatch ", "srun ", "salloc -n ", "sbatch --wrap=", "srun bash -c "):
        found = recognise(start + line, steps, job_name, work_dir, partition)
        assert (found.evidence == "") == (found.application == UNRECOGNISED)


WORDS = [
    "srun", "sbatch", "salloc", "--wrap", "--wrap=", "bash", "-c", "-n", "--", "singularity",
    "exec", "timeout", "python", "-m", "env", "A=1", "&&", ";", "gmx", "mdrun", "'", "{",
    "/", "-", "sh",
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_no_command_raises(words: list[str]) -> None:
    recognise(" ".join(words), words, " ".join(words), "/".join(words))


def test_a_script_in_the_submit_line_is_read_only_at_its_beginning() -> None:
    line = "sbatch --wrap=" + "bash -c " * 200_000 + "gmx mdrun"
    begin = time.process_time()
    assert UNRECOGNISED == of_line(line).application
    assert 0.5 > time.process_time() - begin


def test_a_call_takes_microseconds() -> None:
    """100,000 distinct runs take about two seconds; the bound leaves room for slow machines."""
    runs = [
        (
            f"sbatch -A p{i % 9} -t 24:00:00 run_{i}_case.sh",
            ("batch", "app"),
            f"case_{i}",
            f"/s/u/{i}",
        )
        for i in range(5000)
    ]
    recognise(*runs[0])
    begin = time.process_time()
    for run in runs:
        recognise(*run)
    assert 100e-6 > (time.process_time() - begin) / len(runs)


def test_each_name_and_pattern_is_in_the_table_once() -> None:
    assert [] == [name for name, count in Counter(CLASS_OF).items() if not count]
    assert len(CATALOGUE) == len(CLASS_OF)
    for kind in ("executables", "names", "words", "suffixes"):
        patterns = Counter(each for entry in CATALOGUE for each in getattr(entry, kind))
        assert {} == {pattern: n for pattern, n in patterns.items() if n > 1}


def test_words_of_the_table_can_be_found() -> None:
    """A word in upper case, or ending in a digit and listed without it, would never match."""
    for entry in CATALOGUE:
        for word in entry.words:
            found = of_job(f"x-{word.replace(' ', '_')}").application
            assert entry.application == found, word


def test_document_lists_every_application_and_its_class() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert markdown_table() in text
    for name, checkpointing in CLASS_OF.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
        assert f"| {checkpointing} |" in row
