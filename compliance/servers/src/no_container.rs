//! The third way in a build without it: there is no engine, and no container starts.

use crate::StartError;

/// What would be run.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "what there is to run is the same in every build")]
pub(crate) struct Image {
    pub(crate) name: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) port: u16,
    pub(crate) environment: &'static [(&'static str, &'static str)],
    pub(crate) command: &'static [&'static str],
    pub(crate) ready: (&'static str, usize),
}

/// A container that never runs.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// There is none.
pub(crate) fn engine_is_there() -> bool {
    false
}

impl Container {
    #[expect(clippy::unused_async, reason = "as where containers are")]
    pub(crate) async fn start(image: &Image) -> Result<Self, StartError> {
        let what = format!("start {}: this build has no containers", image.name);
        Err(StartError::Io { what, source: std::io::ErrorKind::Unsupported.into() })
    }
}
