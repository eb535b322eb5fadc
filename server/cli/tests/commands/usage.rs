//! Mistakes in arguments, and the help that prevents them. No server is asked.

use super::shell::{Ran, command, ran};
use std::{fs, path::Path};

fn run(args: &[&str]) -> Ran {
    ran(command(args).output())
}

#[test]
fn mistakes_in_arguments_are_told_before_a_server_is_asked() {
    for (args, named) in [
        (&[][..], "Usage"),
        (&["explode"], "explode"),
        (&["enqueue", "q"], "HANDLER"),
        (&["enqueue", "q", "h", "--delay", "soon"], "soon"),
        (&["enqueue", "q", "h", "--header", "novalue"], "KEY=VALUE"),
        (&["enqueue", "q", "h", "--lines", "--id", "a"], "--id"),
        (&["enqueue", "q", "h", "--payload", "@/nowhere/at/all"], "/nowhere/at/all"),
        (&["claim"], "QUEUE"),
        (&["claim", "q", "--max-in-flight", "3"], "--follow"),
        (&["complete", "a", "not a token"], "token"),
        (&["fail", "a", "AAAA", "--permanent", "--retryable"], "--retryable"),
        (&["list", "q", "--status", "lost"], "lost"),
        (&["list", "q", "--limit", "0"], "0"),
        (&["dlq", "purge", "q"], "--all"),
        (&["dlq", "purge", "q", "--all", "--handler", "h"], "--all"),
        (&["dlq", "redrive", "q", "--id", "a", "--from", "2026-01-01T00:00:00Z"], "--from"),
        (&["dlq", "redrive", "q", "--all", "--spread", "1m", "--rate", "2"], "--rate"),
        (&["dlq", "list", "q", "--from", "yesterday"], "yesterday"),
        (&["queue", "put", "q"], "--set"),
        (&["queue", "put", "q", "--set", "retry.max_attemps=3"], "max_attemps"),
        (&["queue", "put", "q", "--set", "execution.lease=60"], "execution.lease"),
        (&["stream", "read", "s", "--after", "1", "--consumer", "c"], "--consumer"),
        (&["lock", "try", "l", "--owner", "me", "--ttl", "soon"], "soon"),
        (&["schedule", "put", "s", "@daily", "q"], "HANDLER"),
        (&["stats", "--server", "ftp://host"], "ftp"),
        (&["stats", "--server", "http://:::"], "http://:::"),
        (&["serve", "--listen", "0.0.0.0:0"], "--insecure"),
    ] {
        let ran = run(args);
        assert_eq!(ran.code, 2, "rdq {args:?}: {ran:?}");
        assert!(ran.err.contains(named), "rdq {args:?} names {named}: {}", ran.err);
        assert_eq!(ran.out, "", "rdq {args:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_named_with_what_to_do() {
    let ran = run(&["stats", "--server", "127.0.0.1:1"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(
        ran.err,
        "error: cannot reach a server at http://127.0.0.1:1\n  \
         because: tcp connect error\n  \
         because: Connection refused (os error 111)\n  \
         what to do: start a server with `rdq serve`, or name another with --server or RDQ_SERVER\n"
    );
}

/// Every command, by its words.
const COMMANDS: [&[&str]; 43] = [
    &[],
    &["serve"],
    &["migrate"],
    &["enqueue"],
    &["get"],
    &["list"],
    &["cancel"],
    &["claim"],
    &["complete"],
    &["fail"],
    &["release"],
    &["dlq"],
    &["dlq", "list"],
    &["dlq", "redrive"],
    &["dlq", "purge"],
    &["queue"],
    &["queue", "list"],
    &["queue", "get"],
    &["queue", "put"],
    &["queue", "pause"],
    &["queue", "resume"],
    &["queue", "delete"],
    &["stats"],
    &["watch"],
    &["stream"],
    &["stream", "publish"],
    &["stream", "read"],
    &["stream", "subscribe"],
    &["stream", "offset"],
    &["stream", "trim"],
    &["lock"],
    &["lock", "try"],
    &["lock", "renew"],
    &["lock", "release"],
    &["lock", "get"],
    &["schedule"],
    &["schedule", "put"],
    &["schedule", "list"],
    &["schedule", "delete"],
    &["schedule", "pause"],
    &["schedule", "resume"],
    &["bench"],
    &["check"],
];

/// The help is what people see of the program: a change of it is a decision. To take one over, run
/// the test with `RDQ_UPDATE_HELP=1` and read the difference.
#[test]
fn help_is_as_it_was_decided() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let update = std::env::var_os("RDQ_UPDATE_HELP").is_some();
    let mut changed = Vec::new();
    for words in COMMANDS {
        let shown = run(&[words, &["--help"]].concat());
        assert_eq!(shown.code, 0, "rdq {words:?}");
        let name = ["rdq"].iter().chain(words).copied().collect::<Vec<_>>().join("-");
        let path = folder.join(name).with_extension("txt");
        if update {
            fs::write(&path, &shown.out).expect("the snapshot can be written");
        } else if fs::read_to_string(&path).ok().as_deref() != Some(&shown.out) {
            changed.push(path);
        }
    }
    assert!(changed.is_empty(), "changed: {changed:?}; decide, then RDQ_UPDATE_HELP=1");
}

#[test]
fn every_command_of_the_program_has_its_help_kept() {
    let listed = run(&["--help"]).out;
    let commands = listed.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in commands.take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().expect("a name");
        let kept = COMMANDS.iter().any(|words| words.first() == Some(&name));
        assert!(kept || name == "help", "{name} has no snapshot");
    }
}
