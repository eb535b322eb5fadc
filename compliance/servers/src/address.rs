//! The first way: a server whose address the environment gives. It is not ours to stop.

/// The address in this variable, if it is set to anything.
pub(crate) fn from_environment(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|address| !address.is_empty())
}
