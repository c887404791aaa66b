# mypy: ignore-errors
# Started by Snakemake, which defines `snakemake`.
import time

with open(snakemake.output[0], "w") as file:  # noqa: F821, PTH123
    file.write(open(snakemake.input[0]).read())  # noqa: F821, PTH123, SIM115
    for number in range(snakemake.params.n):  # noqa: F821
        file.write(f"{number}\n")
        file.flush()
        time.sleep(float(snakemake.config.get("pause", 0)))  # noqa: F821
