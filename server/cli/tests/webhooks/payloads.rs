//! The payloads: those of the npm package `@octokit/webhooks-examples`, installed when they are
//! first needed and kept with the build.

use crate::harness::{Ignored, calls};
use bytes::Bytes;
use rdq_proto::v1;
use serde::Deserialize;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

const PACKAGE: &str = "@octokit/webhooks-examples";
const VERSION: &str = "7.6.1";

/// One payload, as it is enqueued.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    /// The task's id.
    pub(crate) id: String,
    /// The event that GitHub names.
    pub(crate) event: String,
    /// The JSON text.
    pub(crate) bytes: Bytes,
}

impl Payload {
    /// The task that carries it.
    pub(crate) fn task(&self) -> v1::Task {
        v1::Task {
            handler_ref: self.event.clone(),
            payload_content_type: "application/json".to_owned(),
            headers: [("x-github-event".to_owned(), self.event.clone())].into(),
            ..calls::task(&self.id, crate::QUEUE, self.bytes.clone())
        }
    }
}

/// The entry of one event in the package.
#[derive(Debug, Deserialize)]
struct Event {
    name: String,
    examples: Vec<serde_json::Value>,
}

/// Every payload of the package.
pub(crate) fn payloads() -> Result<Arc<Vec<Payload>>, Ignored> {
    let text = fs::read(installed()?).expect("the package can be read");
    let events: Vec<Event> = serde_json::from_slice(&text).expect("the package's form");
    let of_event = |event: Event| {
        let Event { name, examples } = event;
        examples.into_iter().enumerate().map(move |(number, example)| Payload {
            id: format!("{name}-{number}"),
            event: name.clone(),
            bytes: serde_json::to_vec(&example).expect("it was JSON").into(),
        })
    };
    Ok(Arc::new(events.into_iter().flat_map(of_event).collect()))
}

/// The file with the payloads; installs it where it is not there yet.
fn installed() -> Result<PathBuf, Ignored> {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("webhooks-examples-{VERSION}"));
    let file = format!("node_modules/{PACKAGE}/api.github.com/index.json");
    if !folder.join(&file).exists() {
        // Beside it first: what is there is whole.
        let fresh = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        npm_install(fresh.path())?;
        assert!(fresh.path().join(&file).exists(), "the package has another form");
        // Another test may have been quicker; then there is nothing to do.
        let _ = fs::rename(fresh.path(), &folder);
    }
    Ok(folder.join(file))
}

fn npm_install(folder: &Path) -> Result<(), Ignored> {
    let output = Command::new("npm")
        .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
        .arg("--prefix")
        .arg(folder)
        .arg(format!("{PACKAGE}@{VERSION}"))
        .output()
        .map_err(|error| Ignored::Missing(format!("npm cannot be run: {error}")))?;
    let told = String::from_utf8_lossy(&output.stderr);
    let failed = || Ignored::Missing(format!("npm could not install {PACKAGE}: {told}"));
    output.status.success().then_some(()).ok_or_else(failed)
}
