//! Encoded messages, field by field: what splits known fields from unknown ones without decoding
//! either. It interprets no field.

use bytes::{Buf as _, Bytes, BytesMut};

/// Why bytes are not an encoded message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the bytes are not an encoded message")
    }
}

impl std::error::Error for Malformed {}

/// Groups may nest, and nobody needs them deep.
const GROUP_DEPTH_MAX: u32 = 100;

/// One field as it stands in an encoded message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The field's number.
    pub number: u32,
    /// Key and value, as they came.
    pub raw: Bytes,
    /// The value of a length-delimited field.
    pub value: Option<Bytes>,
}

/// Walks the fields of an encoded message, in their order.
#[derive(Debug, Clone)]
pub struct Fields(Bytes);

/// The fields of `message`, in their order.
pub fn fields(message: Bytes) -> Fields {
    Fields(message)
}

impl Iterator for Fields {
    type Item = Result<Field, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = next_field(&mut self.0);
        if field.is_err() {
            self.0.clear();
        }
        Some(field)
    }
}

fn next_field(rest: &mut Bytes) -> Result<Field, Malformed> {
    let start = rest.clone();
    let (number, wire_type) = key(rest)?;
    let value = skip(rest, number, wire_type, GROUP_DEPTH_MAX)?;
    let raw = start.slice(..start.len() - rest.len());
    Ok(Field { number, raw, value })
}

/// How a value is encoded: the lowest three bits of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WireType {
    Varint,
    SixtyFourBit,
    LengthDelimited,
    StartGroup,
    EndGroup,
    ThirtyTwoBit,
}

/// Reads a field's number and how its value is encoded.
fn key(rest: &mut Bytes) -> Result<(u32, WireType), Malformed> {
    let key = u32::try_from(varint(rest)?).map_err(|_| Malformed)?;
    let wire_type = match key & 7 {
        0 => WireType::Varint,
        1 => WireType::SixtyFourBit,
        2 => WireType::LengthDelimited,
        3 => WireType::StartGroup,
        4 => WireType::EndGroup,
        5 => WireType::ThirtyTwoBit,
        _ => return Err(Malformed),
    };
    let number = key >> 3;
    if number == 0 { Err(Malformed) } else { Ok((number, wire_type)) }
}

/// Reads a varint of up to 64 bits. Padded ones are valid, as long as they end in ten bytes.
fn varint(rest: &mut Bytes) -> Result<u64, Malformed> {
    let mut value = 0;
    for (index, byte) in rest.iter().take(10).enumerate() {
        if index == 9 && *byte > 1 {
            return Err(Malformed); // beyond 64 bits
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            rest.advance(index + 1);
            return Ok(value);
        }
    }
    Err(Malformed)
}

fn skip(
    rest: &mut Bytes,
    number: u32,
    wire_type: WireType,
    depth: u32,
) -> Result<Option<Bytes>, Malformed> {
    let fixed = |rest: &mut Bytes, len: usize| {
        if rest.len() < len {
            return Err(Malformed);
        }
        rest.advance(len);
        Ok(None)
    };
    match wire_type {
        WireType::Varint => varint(rest).map(|_| None),
        WireType::SixtyFourBit => fixed(rest, 8),
        WireType::ThirtyTwoBit => fixed(rest, 4),
        WireType::LengthDelimited => {
            let len = usize::try_from(varint(rest)?).map_err(|_| Malformed)?;
            if rest.len() < len {
                return Err(Malformed);
            }
            Ok(Some(rest.split_to(len)))
        }
        WireType::StartGroup if depth > 0 => loop {
            let (inner, inner_type) = key(rest)?;
            if inner_type == WireType::EndGroup {
                return if inner == number { Ok(None) } else { Err(Malformed) };
            }
            skip(rest, inner, inner_type, depth - 1)?;
        },
        WireType::StartGroup | WireType::EndGroup => Err(Malformed),
    }
}

/// Writes a length-delimited field: its key, its length and its value.
pub fn put_field(to: &mut BytesMut, number: u32, value: &[u8]) {
    put_varint(to, u64::from(number) << 3 | 2);
    put_varint(to, value.len() as u64);
    to.extend_from_slice(value);
}

fn put_varint(to: &mut BytesMut, mut value: u64) {
    while value > 0x7f {
        to.extend_from_slice(&[(value & 0x7f) as u8 | 0x80]);
        value >>= 7;
    }
    to.extend_from_slice(&[value as u8]);
}

/// Splits an encoded message in two: the fields for which `keep` holds, in their order and as they
/// came, and all others.
pub fn split(
    message: &Bytes,
    mut keep: impl FnMut(u32) -> bool,
) -> Result<(Bytes, Vec<Field>), Malformed> {
    // Most messages are kept whole: find the first field that is not, and copy only from there.
    let mut kept = BytesMut::new();
    let mut dropped = Vec::new();
    let mut whole = 0;
    for field in fields(message.clone()) {
        let field = field?;
        match (keep(field.number), dropped.is_empty()) {
            (true, true) => whole += field.raw.len(),
            (true, false) => kept.extend_from_slice(&field.raw),
            (false, true) => {
                kept.extend_from_slice(&message[..whole]);
                dropped.push(field);
            }
            (false, false) => dropped.push(field),
        }
    }
    if dropped.is_empty() { Ok((message.clone(), dropped)) } else { Ok((kept.freeze(), dropped)) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use prost::Message as _;

    #[test]
    fn a_message_is_split_by_field_number_and_keeps_the_order() {
        let task = crate::v1::Task {
            id: "a".into(),
            queue: "q".into(),
            attempt_count: 3,
            ..Default::default()
        };
        let mut bytes = task.encode_to_vec();
        bytes.extend_from_slice(&[0xfa, 0xff, 0xff, 0xff, 0x0f, 1, 7]); // field 536870911
        let bytes = Bytes::from(bytes);

        let (kept, dropped) = split(&bytes, |number| number != 17).unwrap();

        assert_eq!(dropped.iter().map(|field| field.number).collect::<Vec<_>>(), [17]);
        let numbers: Vec<_> = fields(kept).map(|field| field.unwrap().number).collect();
        assert_eq!(numbers, [2, 3, 536_870_911]);
    }

    #[test]
    fn what_is_kept_whole_is_not_copied() {
        let bytes =
            Bytes::from(crate::v1::Task { id: "a".into(), ..Default::default() }.encode_to_vec());
        let (kept, dropped) = split(&bytes, |_| true).unwrap();
        assert_eq!((kept.as_ptr(), dropped.len()), (bytes.as_ptr(), 0));
    }

    #[test]
    fn truncated_overlong_and_unbalanced_bytes_are_malformed() {
        for bytes in [
            &[0x0a][..],      // a key without its value
            &[0x0a, 0x05, 1], // shorter than it says
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x0c],          // the end of a group that never began
            &[0x0b, 0x14],    // a group ended by another's end
            &[0x0b],          // a group without an end
            &[0x00, 0x01],    // field number 0
            &[0x0f],          // wire type 7
            &[0x0d, 1, 2, 3], // three of four bytes
        ] {
            let result: Result<Vec<_>, _> = fields(Bytes::copy_from_slice(bytes)).collect();
            assert_eq!(result, Err(Malformed), "{bytes:?}");
        }
        let deep = [0x0b].repeat(1 << 16);
        assert_eq!(fields(Bytes::from(deep)).next(), Some(Err(Malformed)));
    }
}
