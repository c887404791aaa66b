# Steps that take a while and write as they go: `pause` seconds between two lines.
PAUSE = config.get("pause", 0.1)
COUNT = int(config.get("count", 60))

rule all:
    input: "shell.txt", "run.txt", "script.txt", "shadow.txt", "pair.txt"

rule shell_:
    output: "shell.txt"
    log: "shell.log"
    params: config.get("param", "p")
    resources: cedana=1, cedana_check=config.get("check", "")
    shell: "for i in $(seq {COUNT}); do echo $i; echo $i >&2; sleep {PAUSE}; done > {output} 2> {log}"

rule run_:
    output: "run.txt"
    resources: cedana=1
    run:
        import time
        with open(output[0], "w") as file:
            for number in range(COUNT):
                print(number, file=file, flush=True)
                time.sleep(float(PAUSE))

rule empty:
    output: "empty.txt"
    shell: "touch {output}"

rule script_:
    input: "empty.txt"
    output: "script.txt"
    params: n=COUNT
    resources: cedana=1
    script: "scripts/count.py"

rule shadow_:
    output: "shadow.txt"
    shadow: "minimal"
    resources: cedana=1
    shell:
        "for i in $(seq {COUNT}); do echo $i > part.$i; sleep {PAUSE}; done; "
        "for i in $(seq {COUNT}); do cat part.$i; done > {output}"

rule first:
    output: "first.txt"
    group: "pair"
    resources: cedana=1
    shell: "for i in $(seq {COUNT}); do echo $i; sleep {PAUSE}; done > {output}"

rule second:
    input: "first.txt"
    output: "pair.txt"
    params: n=COUNT
    group: "pair"
    resources: cedana=1
    script: "scripts/count.py"
