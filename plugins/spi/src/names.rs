//! Names and their grammar: one place checks it, at every entry point.

use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// Names that start so belong to rdq itself.
const RESERVED_PREFIX: &str = "__rdq_";
const NAME_BYTES_MAX: usize = 240;
const ID_BYTES_MAX: usize = 255;
const KEY_BYTES_MAX: usize = 1024;

/// Why text is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing, or nothing but white space.
    #[error("must not be empty or only white space")]
    Blank,
    /// More bytes than a name has.
    #[error("must be at most {max} bytes, not {len}")]
    TooLong {
        /// The limit.
        max: usize,
        /// What came.
        len: usize,
    },
    /// A control character, NUL among them.
    #[error("must not contain control characters")]
    Control,
    /// The prefix `__rdq_`.
    #[error("must not start with the reserved prefix `__rdq_`")]
    Reserved,
}

fn check_grammar(text: &str, max: usize) -> Result<(), NameError> {
    if text.trim().is_empty() {
        Err(NameError::Blank)
    } else if text.len() > max {
        Err(NameError::TooLong { max, len: text.len() })
    } else if text.chars().any(char::is_control) {
        Err(NameError::Control)
    } else {
        Ok(())
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $max:expr, reserved: $reserved:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the grammar.
            pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
                let text = text.as_ref();
                check_grammar(text, $max)?;
                if $reserved && text.starts_with(RESERVED_PREFIX) {
                    return Err(NameError::Reserved);
                }
                Ok(Self(text.into()))
            }

            /// Takes text that a backend stored, and so was checked once.
            pub fn stored(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
    };
}

name! {
    /// A queue, or another name under the same grammar (a handler): 1 to 240 bytes of UTF-8, not
    /// only white space, no control characters, not starting with `__rdq_`. Never trimmed, never
    /// interpreted.
    QueueName, NAME_BYTES_MAX, reserved: true
}
name! {
    /// Who claims: a name without the rule of the reserved prefix. It decides nothing.
    WorkerId, NAME_BYTES_MAX, reserved: false
}
name! {
    /// A task's id: 1 to 255 bytes of UTF-8, no control characters.
    TaskId, ID_BYTES_MAX, reserved: false
}
name! {
    /// A channel of signals: a name as a queue's is.
    ChannelName, NAME_BYTES_MAX, reserved: true
}
name! {
    /// A stream of events: a name as a queue's is.
    StreamName, NAME_BYTES_MAX, reserved: true
}
name! {
    /// Who reads a stream and saves offsets: a name without the rule of the reserved prefix.
    ConsumerName, NAME_BYTES_MAX, reserved: false
}
name! {
    /// A lock: a name as a queue's is.
    LockName, NAME_BYTES_MAX, reserved: true
}
name! {
    /// Who holds a lock: a name without the rule of the reserved prefix.
    OwnerName, NAME_BYTES_MAX, reserved: false
}
name! {
    /// The key of a record: a name without the rule of the reserved prefix.
    RecordName, NAME_BYTES_MAX, reserved: false
}
name! {
    /// A schedule: a name as a queue's is.
    ScheduleName, NAME_BYTES_MAX, reserved: true
}
name! {
    /// On whose behalf a mutation is observed: a name without the rule of the reserved prefix.
    SubjectName, NAME_BYTES_MAX, reserved: false
}
name! {
    /// What a mutation does: a name without the rule of the reserved prefix.
    OperationName, NAME_BYTES_MAX, reserved: false
}
name! {
    /// Which time a mutation is done: a name without the rule of the reserved prefix.
    MutationKey, NAME_BYTES_MAX, reserved: false
}
name! {
    /// What kind of mutation it is: a name without the rule of the reserved prefix.
    MutationKind, NAME_BYTES_MAX, reserved: false
}

/// The key of an event: 1 to 1,024 bytes of UTF-8 of any kind. Carried, never interpreted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventKey(Arc<str>);

impl EventKey {
    /// Checks the length.
    pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(NameError::Blank);
        }
        if text.len() > KEY_BYTES_MAX {
            return Err(NameError::TooLong { max: KEY_BYTES_MAX, len: text.len() });
        }
        Ok(Self(text.into()))
    }

    /// Takes text that a backend stored, and so was checked once.
    pub fn stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_takes_text_as_it_is_and_refuses_the_rest() {
        for good in
            ["a", " a ", "%", "_", "'", "\"", "\\", "../x", "a:b", "{a}", "🦀", "عربي", "__rdq"]
        {
            assert_eq!(QueueName::new(good).unwrap().as_str(), good);
        }
        assert_eq!(QueueName::new("x".repeat(240)).unwrap().as_str().len(), 240);
        for (bad, why) in [
            (String::new(), NameError::Blank),
            (" \u{a0}".into(), NameError::Blank),
            ("é".repeat(121), NameError::TooLong { max: 240, len: 242 }),
            ("a\0b".into(), NameError::Control),
            ("a\u{85}b".into(), NameError::Control),
            ("__rdq_x".into(), NameError::Reserved),
        ] {
            assert_eq!(QueueName::new(&bad), Err(why), "{bad:?}");
        }
        assert!(WorkerId::new("__rdq_x").is_ok());
    }
}
