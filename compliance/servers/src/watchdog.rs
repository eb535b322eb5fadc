//! Ends what a test started when the test process ends, even by SIGKILL: a shell that waits for the
//! end of its input, which the system closes then. Values in a `static` are never dropped, so a
//! destructor would not do.

use crate::StartError;
use std::{
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{ChildStdin, Command, Stdio},
};

/// Reads what to end, the latest line counting, until the input ends.
const SCRIPT: &str = r#"
last=
while read -r line; do last=$line; done
[ -z "$last" ] || sh -c "$last"
[ -z "$1" ] || rm -rf "$1" || { sleep 1; rm -rf "$1"; }
"#;

/// The end of the pipe that keeps the watchdog waiting.
#[derive(Debug)]
pub(crate) struct Watchdog(ChildStdin);

impl Watchdog {
    /// Starts one. At the end it removes this folder too.
    pub(crate) fn start(folder: Option<&Path>) -> Result<Self, StartError> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "rdq-test-watchdog"])
            .arg(folder.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C ends the test; this is what cleans up after it.
            .process_group(0)
            .spawn()
            .map_err(StartError::io("start a shell"))?;
        let stdin = shell.stdin.take().expect("stdin is piped");
        // Nobody waits for the shell but this thread, which ends with the process if not before.
        std::thread::spawn(move || shell.wait());
        Ok(Self(stdin))
    }

    /// What to run at the end in place of what was to be run; nothing if empty.
    pub(crate) fn at_end(&mut self, command: &str) -> Result<(), StartError> {
        writeln!(self.0, "{command}").map_err(StartError::io("tell the watchdog"))
    }
}
