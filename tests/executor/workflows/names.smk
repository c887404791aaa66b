import json

NAMES = json.loads(open("names.json").read())

wildcard_constraints:
    s=r"[^/]+"

rule all:
    input: expand("out/{s}.txt", s=NAMES)

rule named:
    output: "out/{s}.txt"
    log: "logs/{s}.log"
    resources: cedana=int(config.get("cedana", 1))
    run:
        with open(output[0], "w") as file:
            file.write(wildcards.s)

rule grouped:
    output: "grouped/{s}.txt"
    group: "g"
    resources: cedana=int(config.get("cedana", 1))
    run:
        with open(output[0], "w") as file:
            file.write(wildcards.s)
