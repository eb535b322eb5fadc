//! The second way: a program that is installed here, on a free port, in a temporary folder. It is
//! ended by its id, and can be killed, paused and started again on the same data.

use crate::{StartError, watchdog::Watchdog};
use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// Looks for the sign of a start so often, for so long: a first start on a busy machine is slow.
const READY_POLL: Duration = Duration::from_millis(20);
const READY_POLLS: u32 = 3_000;
/// Children of a killed server end by themselves, soon.
const STARTS_TRIED: u32 = 200;
/// A port that was free may be taken before the program has it.
const PORTS_TRIED: u32 = 5;

/// What to start, and how.
pub(crate) struct Spec {
    pub(crate) program: PathBuf,
    /// Who runs it, where that is not who runs the test.
    pub(crate) account: Option<Account>,
    /// The arguments, for a folder and a port.
    pub(crate) arguments: fn(&Path, u16) -> Vec<String>,
    /// Beside those: what this server is started with.
    pub(crate) settings: Vec<String>,
    /// The program writes this when it serves.
    pub(crate) ready: &'static str,
    /// It writes this, and ends, while children of one that was killed are still ending.
    pub(crate) not_yet: Option<&'static str>,
    /// The signal that ends it and all its children at once.
    pub(crate) end_signal: &'static str,
}

/// A user of the system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// The account that a program needs which refuses to run as root; `None` where the test does
    /// not run as root, or where there is no such user.
    pub(crate) fn instead_of_root(user: &str) -> Option<Self> {
        let id = |arguments: &[&str]| -> Option<u32> {
            let output = Command::new("id").args(arguments).output().ok()?;
            String::from_utf8(output.stdout).ok()?.trim().parse().ok()
        };
        (id(&["-u"])? == 0).then_some(())?;
        Some(Self { uid: id(&["-u", user])?, gid: id(&["-g", user])? })
    }
}

/// A server that this process started. Dropping it ends it and removes its folder.
pub struct LocalServer {
    spec: Spec,
    folder: TempDir,
    port: u16,
    child: Option<Child>,
    watchdog: Watchdog,
}

impl std::fmt::Debug for LocalServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on port {}", self.spec.program.display(), self.port)
    }
}

impl LocalServer {
    /// Prepares a folder and starts the program in it.
    pub(crate) fn start(
        spec: Spec,
        prepare: impl FnOnce(&Path, Option<Account>) -> Result<(), StartError>,
    ) -> Result<Self, StartError> {
        Self::start_in(&std::env::temp_dir(), spec, prepare)
    }

    /// The same, with a folder in this one.
    pub(crate) fn start_in(
        parent: &Path,
        spec: Spec,
        prepare: impl FnOnce(&Path, Option<Account>) -> Result<(), StartError>,
    ) -> Result<Self, StartError> {
        let folder = tempfile::Builder::new()
            .prefix("rdq-test-")
            .tempdir_in(parent)
            .map_err(StartError::io("make a temporary folder"))?;
        if let Some(Account { uid, gid }) = spec.account {
            chown(folder.path(), Some(uid), Some(gid))
                .map_err(StartError::io("give the folder to the server's user"))?;
        }
        let watchdog = Watchdog::start(Some(folder.path()))?;
        prepare(folder.path(), spec.account)?;
        let mut server = Self { spec, folder, port: 0, child: None, watchdog };
        let mut tries = 0;
        loop {
            tries += 1;
            server.port = free_port()?;
            match server.start_again() {
                Err(StartError::NotReady { output, .. })
                    if tries < PORTS_TRIED && output.contains("ddress already in use") => {}
                started => return started.map(|()| server),
            }
        }
    }

    /// The port that it listens on, at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// What it wrote since it was first started.
    pub fn output(&self) -> String {
        let output = fs::read(self.output_path()).unwrap_or_default();
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Starts it on its data and its port once it has ended, and waits until it serves.
    pub fn start_again(&mut self) -> Result<(), StartError> {
        for _ in 0..STARTS_TRIED {
            match self.try_start() {
                Err(StartError::NotReady { output, .. })
                    if self.spec.not_yet.is_some_and(|text| output.contains(text)) =>
                {
                    std::thread::sleep(READY_POLL);
                }
                started => return started,
            }
        }
        self.try_start()
    }

    fn try_start(&mut self) -> Result<(), StartError> {
        let written = self.output().len();
        let mut command = command(&self.spec.program, self.folder.path(), self.spec.account)?;
        let child = command
            .args((self.spec.arguments)(self.folder.path(), self.port))
            .args(&self.spec.settings)
            .process_group(0)
            .spawn()
            .map_err(StartError::io(format!("start {}", self.spec.program.display())))?;
        let (pid, signal) = (child.id(), self.spec.end_signal);
        let child = self.child.insert(child);
        self.watchdog
            .at_end(&format!("kill -{signal} {pid} && sleep 0.5; kill -KILL {pid} 2>/dev/null"))?;
        for _ in 0..READY_POLLS {
            let has_ended = child.try_wait().map_err(StartError::io("ask for the server"))?;
            let output = fs::read(output_path(self.folder.path())).unwrap_or_default();
            let output = String::from_utf8_lossy(&output[written.min(output.len())..]);
            if has_ended.is_some() {
                return Err(self.not_ready(output.into_owned()));
            }
            if output.contains(self.spec.ready) {
                return Ok(());
            }
            std::thread::sleep(READY_POLL);
        }
        Err(self.not_ready(self.output()))
    }

    /// Waits until it has written this, which from now on is what tells that it serves.
    pub(crate) fn wait_until(&mut self, ready: &'static str) -> Result<(), StartError> {
        self.spec.ready = ready;
        for _ in 0..READY_POLLS {
            if self.output().contains(ready) {
                return Ok(());
            }
            std::thread::sleep(READY_POLL);
        }
        Err(self.not_ready(self.output()))
    }

    fn not_ready(&mut self, output: String) -> StartError {
        self.end("KILL");
        StartError::NotReady { program: self.spec.program.display().to_string(), output }
    }

    /// Ends it at once, as a crash would, and waits until it is gone.
    pub fn kill(&mut self) {
        self.end("KILL");
    }

    /// Ends it and its children at once, as the loss of a machine would, also where they are paused.
    pub fn kill_all(&mut self) {
        // Itself first: it starts no more children then.
        self.signal("STOP");
        for child in self.children() {
            send("KILL", child);
        }
        self.end("KILL");
    }

    /// Ends it and its children, and waits until it is gone.
    pub fn stop(&mut self) {
        self.end(self.spec.end_signal);
    }

    /// Sends it a signal, by its name without `SIG`.
    pub fn signal(&self, signal: &str) {
        let sent = self.pid().is_some_and(|pid| send(signal, pid));
        assert!(sent, "signal {signal} to {self:?}, which runs");
    }

    /// Stops it and its children where they are, as a machine does that pauses.
    pub fn pause(&self) {
        self.signal_all("STOP");
    }

    /// Lets them go on.
    pub fn resume(&self) {
        self.signal_all("CONT");
    }

    fn signal_all(&self, signal: &str) {
        // Itself first: it starts no more children then.
        self.signal(signal);
        for child in self.children() {
            // It may have ended by itself.
            send(signal, child);
        }
    }

    fn children(&self) -> Vec<u32> {
        let pid = self.pid().expect("it runs");
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
    }

    fn end(&mut self, signal: &str) {
        let Some(mut child) = self.child.take() else { return };
        // Its id is its own until somebody has waited for it.
        if let Ok(None) = child.try_wait() {
            send(signal, child.id());
            // A stopped process takes no other signal.
            send("CONT", child.id());
        }
        drop(child.wait());
        // Its id may be another process's soon.
        drop(self.watchdog.at_end(""));
    }

    fn output_path(&self) -> PathBuf {
        output_path(self.folder.path())
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A command of that user with its output in the folder's file.
pub(crate) fn command(
    program: &Path,
    folder: &Path,
    account: Option<Account>,
) -> Result<Command, StartError> {
    let open = || File::options().create(true).append(true).open(output_path(folder));
    let output = open().map_err(StartError::io("open the server's output"))?;
    let errors = output.try_clone().map_err(StartError::io("open the server's output"))?;
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).stdout(output).stderr(errors);
    if let Some(Account { uid, gid }) = account {
        command.uid(uid).gid(gid);
    }
    Ok(command)
}

/// Runs a command to its end.
pub(crate) fn run(mut command: Command, folder: &Path) -> Result<(), StartError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(StartError::io(format!("run {program}")))?;
    if status.success() {
        return Ok(());
    }
    let output = fs::read(output_path(folder)).unwrap_or_default();
    Err(StartError::NotReady { program, output: String::from_utf8_lossy(&output).into_owned() })
}

fn send(signal: &str, pid: u32) -> bool {
    let mut kill = Command::new("sh");
    kill.arg("-c").arg(format!("kill -{signal} {pid}")).stderr(Stdio::null());
    kill.status().is_ok_and(|status| status.success())
}

fn output_path(folder: &Path) -> PathBuf {
    folder.join("output.txt")
}

pub(crate) fn free_port() -> Result<u16, StartError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    Ok(listener.map_err(StartError::io("find a free port"))?.port())
}

/// The program of this name in the path, or in one of these folders.
pub(crate) fn find(name: &str, folders: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<_> = std::env::split_paths(&path).collect();
    let candidates = in_path.into_iter().chain(folders).map(|folder| folder.join(name));
    candidates.into_iter().find(|candidate| candidate.is_file())
}
