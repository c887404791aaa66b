# Every kind of rule, each with what Snakemake offers around it.
OPT = int(config.get("cedana", 1))

rule all:
    input: "done.txt"

rule shell_:
    output: "a b/shell.txt"
    log: "logs/shell.log"
    benchmark: "bench/shell.tsv"
    params: word="it's $HOME \"quoted\""
    threads: 2
    resources: cedana=OPT, mem_mb=100
    shell: "echo {params.word:q} {threads} > {output:q}; echo said >&2 2> {log}; test -w $TMPDIR"

rule run_:
    output: temp("run.txt")
    resources: cedana=OPT
    run:
        with open(output[0], "w") as file:
            file.write(f"{rule}\n")

rule script_:
    input: "run.txt"
    output: "script.txt"
    params: n=3
    resources: cedana=OPT
    script: "scripts/count.py"

rule directory_:
    output: directory("dir")
    resources: cedana=OPT
    shell: "mkdir {output}; for i in 1 2 3; do echo $i > {output}/$i; done"

rule shadow_:
    input: "script.txt"
    output: "shadow.txt"
    shadow: "minimal"
    resources: cedana=OPT
    shell: "echo hidden > undeclared.txt; cat undeclared.txt {input} > {output}"

rule member_one:
    output: "one.txt"
    group: "together"
    resources: cedana=OPT
    shell: "echo one > {output}"

rule member_two:
    input: "one.txt"
    output: "two.txt"
    group: "together"
    resources: cedana=OPT
    shell: "cat {input} > {output}; echo two >> {output}"

rule retried:
    output: "retried.txt"
    resources: cedana=OPT
    shell: "echo x >> tries; test $(wc -l < tries) -ge 2; cat tries > {output}"

rule collect:
    input: "a b/shell.txt", "script.txt", "dir", "shadow.txt", "two.txt", "retried.txt"
    output: "done.txt"
    shell: "cat 'a b/shell.txt' script.txt dir/* shadow.txt two.txt retried.txt > {output}"
