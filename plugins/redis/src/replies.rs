//! What functions answer, taken apart. `None` is an answer of another shape, which is a bug.

use bytes::Bytes;
use redis::Value;

/// An answer, or a part of one.
#[derive(Debug)]
pub(crate) struct Reply(pub(crate) Value);

impl Reply {
    pub(crate) fn list(self) -> Option<std::vec::IntoIter<Value>> {
        match self.0 {
            Value::Array(values) => Some(values.into_iter()),
            _ => None,
        }
    }

    pub(crate) fn number(&self) -> Option<i64> {
        match self.0 {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn count(&self) -> Option<u64> {
        self.number()?.try_into().ok()
    }

    pub(crate) fn bytes(self) -> Option<Bytes> {
        match self.0 {
            Value::BulkString(bytes) => Some(bytes.into()),
            _ => None,
        }
    }

    /// Bytes; nothing where there are none.
    pub(crate) fn bytes_or_none(self) -> Option<Bytes> {
        match self.0 {
            Value::Nil => Some(Bytes::new()),
            value => Self(value).bytes(),
        }
    }

    pub(crate) fn text(self) -> Option<String> {
        match self.0 {
            Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Every part, read alike.
    pub(crate) fn each<T>(self, read: impl Fn(Self) -> Option<T>) -> Option<Vec<T>> {
        self.list()?.map(|value| read(Self(value))).collect()
    }
}

/// The next part of an answer.
pub(crate) fn next(parts: &mut std::vec::IntoIter<Value>) -> Option<Reply> {
    parts.next().map(Reply)
}
