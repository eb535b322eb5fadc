//! Whether a failure may run again. Pure.

use std::sync::Arc;

/// A pattern over error types: `*` is any text, `?` one character, everything else itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob(Arc<str>);

impl Glob {
    pub(crate) fn new(pattern: &str) -> Self {
        Self(pattern.into())
    }

    /// Matches in time pattern × text at most, without recursion: only the last `*` is ever
    /// reconsidered, since an earlier one has nothing to gain.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let (mut pattern, mut text) = (self.0.chars(), text.chars());
        let mut retry = None;
        loop {
            let (mut next_pattern, mut next_text) = (pattern.clone(), text.clone());
            match (next_pattern.next(), next_text.next()) {
                (None, None) => return true,
                (Some('*'), _) => {
                    retry = Some((next_pattern.clone(), text.clone()));
                    pattern = next_pattern;
                    continue;
                }
                (Some('?'), Some(_)) => {
                    (pattern, text) = (next_pattern, next_text);
                    continue;
                }
                (Some(wanted), Some(found)) if wanted == found => {
                    (pattern, text) = (next_pattern, next_text);
                    continue;
                }
                _ => {}
            }
            // A mismatch: the last `*` takes one character more, if there is one.
            let Some((after_star, mut swallowed)) = retry.take() else { return false };
            if swallowed.next().is_none() {
                return false;
            }
            (pattern, text) = (after_star.clone(), swallowed.clone());
            retry = Some((after_star, swallowed));
        }
    }
}

/// What the worker itself says of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// It may run again.
    Retryable,
    /// It must not.
    Permanent,
}

/// Decides: the worker's own word, then `permanent`, then `retryable`, else retryable.
pub(crate) fn classify(
    explicit: Option<Judgement>,
    error_type: &str,
    permanent: &[Glob],
) -> Judgement {
    // `retryable` globs need no look: what no `permanent` glob catches is retryable either way.
    match explicit {
        Some(judgement) => judgement,
        None if permanent.iter().any(|glob| glob.matches(error_type)) => Judgement::Permanent,
        None => Judgement::Retryable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_written() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything.at-all", true),
            ("http.4*", "http.404", true),
            ("http.4*", "http.503", false),
            ("http.?0?", "http.503", true),
            ("http.?", "http.", false),
            ("*.Timeout", "rdq.Timeout", true),
            ("*.Timeout", "rdq.Timeouts", false),
            ("a*b*c", "a--b--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("?", "é", true),
            ("[a]", "a", false),
            ("a.b", "axb", false),
            ("**a**", "bab", true),
            ("A", "a", false),
        ] {
            assert_eq!(Glob::new(pattern).matches(text), expected, "{pattern:?} on {text:?}");
        }
    }

    #[test]
    fn a_hostile_glob_takes_no_exponential_time() {
        let glob = Glob::new(&"*a".repeat(120));
        assert!(!glob.matches(&"a".repeat(119)));
        assert!(!glob.matches(&format!("{}b", "a".repeat(254))));
    }

    #[test]
    fn the_worker_decides_before_permanent_before_anything_else() {
        let permanent = [Glob::new("http.4*"), Glob::new("Bug")];
        for (explicit, error_type, expected) in [
            (None, "http.404", Judgement::Permanent),
            (None, "Bug", Judgement::Permanent),
            (None, "http.503", Judgement::Retryable),
            (None, "", Judgement::Retryable),
            (Some(Judgement::Retryable), "http.404", Judgement::Retryable),
            (Some(Judgement::Permanent), "http.503", Judgement::Permanent),
        ] {
            assert_eq!(classify(explicit, error_type, &permanent), expected, "{error_type}");
        }
    }
}
