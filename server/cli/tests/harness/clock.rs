//! A wrong clock for a process: libfaketime, loaded into it by its environment. Time goes on at its
//! own pace there, only the time of day is another.

use super::Ignored;
use std::{fs, path::PathBuf};

/// What a process is started with whose time of day is off.
#[derive(Debug)]
pub(crate) struct WrongClock {
    library: String,
    offset: String,
}

impl WrongClock {
    /// Off by so much, for instance `-10m`.
    pub(crate) fn off_by(offset: &str) -> Result<Self, Ignored> {
        let library = library()?.to_str().expect("a path of the system").to_owned();
        Ok(Self { library, offset: offset.to_owned() })
    }

    /// The variables.
    pub(crate) fn environment(&self) -> [(&str, &str); 3] {
        [
            ("LD_PRELOAD", &self.library),
            ("FAKETIME", &self.offset),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]
    }
}

/// The library, wherever the system keeps it.
fn library() -> Result<PathBuf, Ignored> {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    folders
        .map(|folder| folder.path().join("faketime/libfaketime.so.1"))
        .find(|path| path.exists())
        .ok_or_else(|| Ignored::Missing("libfaketime (Debian package: faketime)".to_owned()))
}
