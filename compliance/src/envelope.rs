//! Encodes envelopes: the protobuf of `rdq.v1.Task` without the fields that belong to the server, by
//! hand, so that the kit knows no generated code. It decodes nothing: a storage must not either.

use bytes::Bytes;
use rdq_spi::NewTask;
use std::time::Duration;

/// Appends protobuf fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(Vec<u8>);

impl Fields {
    pub(crate) fn varint(mut self, field: u32, value: u64) -> Self {
        self.key(field, 0);
        self.raw_varint(value);
        self
    }

    pub(crate) fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.key(field, 2);
        self.raw_varint(u64::try_from(value.len()).expect("a length"));
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn fixed64(mut self, field: u32, value: u64) -> Self {
        self.key(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn fixed32(mut self, field: u32, value: u32) -> Self {
        self.key(field, 5);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn group(mut self, field: u32, inner: &Self) -> Self {
        self.key(field, 3);
        self.0.extend_from_slice(&inner.0);
        self.key(field, 4);
        self
    }

    pub(crate) fn raw(mut self, encoded: &[u8]) -> Self {
        self.0.extend_from_slice(encoded);
        self
    }

    pub(crate) fn finish(self) -> Bytes {
        self.0.into()
    }

    fn duration(self, field: u32, duration: Option<Duration>) -> Self {
        let Some(duration) = duration else { return self };
        let inner = Self::default().varint(1, duration.as_secs());
        let inner = match duration.subsec_nanos() {
            0 => inner,
            nanos => inner.varint(2, u64::from(nanos)),
        };
        self.bytes(field, &inner.0)
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.raw_varint(u64::from(field << 3 | wire_type));
    }

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }
}

/// The envelope that says what the task's typed fields say, with what only an envelope holds.
pub(crate) fn of(task: &NewTask, payload: &[u8], headers: &[(&str, &str)], rest: &[u8]) -> Bytes {
    let mut fields = Fields::default()
        .bytes(2, task.id.as_str().as_bytes())
        .bytes(3, task.queue.as_str().as_bytes())
        .bytes(4, task.handler_ref.as_str().as_bytes());
    if !payload.is_empty() {
        fields = fields.bytes(6, payload);
    }
    for (key, value) in headers {
        let entry = Fields::default().bytes(1, key.as_bytes()).bytes(2, value.as_bytes());
        fields = fields.bytes(8, &entry.0);
    }
    if task.priority != 0 {
        // Negative int32 travel as ten bytes of sign-extended int64.
        fields = fields.varint(9, i64::from(task.priority).cast_unsigned());
    }
    if let Some(max_attempts) = task.overrides.max_attempts {
        fields = fields.varint(10, u64::from(max_attempts));
    }
    fields
        .duration(11, task.overrides.lease)
        .duration(12, task.overrides.initial_backoff)
        .duration(13, task.overrides.retention_dead)
        .raw(rest)
        .finish()
}

/// Fields that no server knows, of every wire type, under small, large and the largest numbers.
pub(crate) fn unknown_fields() -> Fields {
    let nested = Fields::default().varint(1, 7).bytes(900, b"deeper \0 still");
    Fields::default()
        .varint(5000, u64::MAX)
        .fixed32(5001, 0xdead_beef)
        .fixed64(5002, 0x0123_4567_89ab_cdef)
        .bytes(5003, &nested.0)
        .group(5004, &nested)
        .bytes(5005, b"")
        .varint(5000, 0)
        .bytes(536_870_911, &[0, 0xff, 0xfe, 0x80])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_protobuf_does() {
        let inner = Fields::default().varint(1, 150);
        assert_eq!(inner.0, [0x08, 0x96, 0x01]);
        let outer = Fields::default().bytes(2, b"hi").group(3, &inner).fixed32(4, 1);
        assert_eq!(&*outer.finish(), b"\x12\x02hi\x1b\x08\x96\x01\x1c\x25\x01\0\0\0");
    }
}
