//! A disk of the test's own, an ext4 file system in a file: it can be filled, and its power can be
//! cut. It needs root.

use super::Ignored;
use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// A mounted file system that is unmounted when this is dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: TempDir,
}

impl Disk {
    /// Makes and mounts one. Says why where that cannot be done.
    pub(crate) fn mounted(size_mib: u64) -> Result<Self, Ignored> {
        if !rustix::process::geteuid().is_root() {
            return Err(Ignored::NotAllowed(
                "it mounts a file system, which root alone may".into(),
            ));
        }
        let folder = tempfile::tempdir().expect("a directory");
        // Databases run as users of their own.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let disk = Self { folder };
        let image = fs::File::create(disk.image()).expect("a file");
        image.set_len(size_mib << 20).expect("a sparse file");
        fs::create_dir(disk.path()).expect("a directory");
        // Without the blocks that are kept back for root, who fills it here.
        run(system("mkfs.ext4").args(["-q", "-m", "0"]).arg(disk.image()))?;
        disk.mount()?;
        Ok(disk)
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Mounts it.
    pub(crate) fn mount(&self) -> Result<(), Ignored> {
        run(system("mount").args(["-o", "loop"]).arg(self.image()).arg(self.path()))
    }

    /// Unmounts it. Nobody may have a file open.
    pub(crate) fn unmount(&self) -> Result<(), Ignored> {
        run(system("umount").arg(self.path()))
    }

    /// Writes out what is only in memory.
    pub(crate) fn sync(&self) {
        run(system("sync").arg("--file-system").arg(self.path())).expect("the disk is there");
    }

    /// Cuts its power. What has it open gets errors from then on.
    pub(crate) fn cut_power(&self) -> Result<(), Ignored> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/power_cut.py");
        run(system("python3").arg(script).arg(self.path()))
    }

    /// Takes all the space that is left, in a file that is given back by [`Disk::free`].
    pub(crate) fn fill(&self) -> u64 {
        let mut file = fs::File::create(self.filler()).expect("a file");
        let mut filled = 0;
        // Large pieces first, and then what is left.
        for piece in [1 << 20, 4 << 10, 512] {
            let zeros = vec![0; piece];
            while let Ok(written) = file.write(&zeros) {
                filled += u64::try_from(written).expect("usize fits");
            }
            // Space is only taken for good once it is on the disk.
            let _ = file.sync_all();
        }
        filled
    }

    /// Gives back what [`Disk::fill`] took.
    pub(crate) fn free(&self) {
        fs::remove_file(self.filler()).expect("the filler is there");
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // It may be unmounted already. Whoever still has files open keeps them, lazily.
        let _ = system("umount").args(["--lazy", "--quiet"]).arg(self.path()).output();
    }
}

/// A program of the system, also where the path lacks the places of root's programs.
fn system(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

fn run(command: &mut Command) -> Result<(), Ignored> {
    let shown = format!("{command:?}");
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(Ignored::Missing(format!("{shown} failed: {error}")))
        }
        Err(error) => Err(Ignored::Missing(format!("{shown} cannot be run: {error}"))),
    }
}
