//! Numbers and text as bytes: what functions unpack and pack, big end first. Pure.

use bytes::Bytes;
use rdq_spi::Timestamp;
use std::time::Duration;

/// Lua's numbers are doubles: above this they are not exact.
pub(crate) const NUMBER_MAX: i64 = (1 << 53) - 1;

/// Bytes being packed.
#[derive(Debug, Default)]
pub(crate) struct Packer(Vec<u8>);

impl Packer {
    pub(crate) fn u8(mut self, number: u8) -> Self {
        self.0.push(number);
        self
    }

    pub(crate) fn flag(self, flag: bool) -> Self {
        self.u8(flag.into())
    }

    pub(crate) fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// A number that Lua can hold.
    pub(crate) fn i64(mut self, number: i64) -> Self {
        let number = number.clamp(-NUMBER_MAX, NUMBER_MAX);
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn f64(mut self, number: f64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// A size, which Lua can hold.
    pub(crate) fn len(self, len: usize) -> Self {
        self.i64(i64::try_from(len).unwrap_or(NUMBER_MAX))
    }

    /// A size of something that is far below 4 GiB.
    pub(crate) fn len32(self, len: usize) -> Self {
        self.u32(u32::try_from(len).unwrap_or(u32::MAX))
    }

    /// A duration in milliseconds, rounded up.
    pub(crate) fn millis(self, duration: Duration) -> Self {
        self.i64(millis(duration))
    }

    /// The same, or -1.
    pub(crate) fn optional_millis(self, duration: Option<Duration>) -> Self {
        self.i64(duration.map_or(-1, millis))
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Text of at most 255 bytes: a name or an id.
    pub(crate) fn name(self, text: &str) -> Self {
        let len = u8::try_from(text.len()).expect("names and ids have at most 255 bytes");
        self.u8(len).raw(text.as_bytes())
    }

    pub(crate) fn block(self, bytes: &[u8]) -> Self {
        self.len32(bytes.len()).raw(bytes)
    }

    pub(crate) fn done(self) -> Bytes {
        self.0.into()
    }
}

fn millis(duration: Duration) -> i64 {
    // No longer than from the first instant to the last, so that sums stay exact.
    let longest = Timestamp::MAX.millis() - Timestamp::MIN.millis();
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX).min(longest)
}

/// Reads what was packed; `None` where it ends too early.
pub(crate) struct Unpacker<'a>(pub(crate) &'a [u8]);

impl<'a> Unpacker<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn timestamp(&mut self) -> Option<Timestamp> {
        self.i64().map(Timestamp::from_millis)
    }

    pub(crate) fn duration(&mut self) -> Option<Duration> {
        let secs = self.array().map(u64::from_be_bytes)?;
        let nanos = self.u32()?;
        (nanos < 1_000_000_000).then(|| Duration::new(secs, nanos))
    }

    pub(crate) fn name(&mut self) -> Option<&'a str> {
        let len = self.u8()?;
        std::str::from_utf8(self.bytes(len.into())?).ok()
    }

    pub(crate) fn block(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.block()?.to_vec()).ok()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_and_stay_exact_in_a_double() {
        for (duration, expected) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(7), 7),
            (Duration::MAX, 315_537_897_599_999),
        ] {
            assert_eq!(millis(duration), expected, "{duration:?}");
        }
    }
}
