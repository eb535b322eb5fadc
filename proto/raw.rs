//! Encoded messages, field by field: what splits known fields from unknown ones without decoding
//! either. It interprets no field.

use bytes::{Buf as _, Bytes, BytesMut};
use prost::encoding::{WireType, decode_key, decode_varint};

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
    let (number, wire_type) = decode_key(rest).map_err(|_| Malformed)?;
    let value = skip(rest, number, wire_type, GROUP_DEPTH_MAX)?;
    let raw = start.slice(..start.len() - rest.len());
    Ok(Field { number, raw, value })
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
        WireType::Varint => decode_varint(rest).map(|_| None).map_err(|_| Malformed),
        WireType::SixtyFourBit => fixed(rest, 8),
        WireType::ThirtyTwoBit => fixed(rest, 4),
        WireType::LengthDelimited => {
            let len = decode_varint(rest).map_err(|_| Malformed)?;
            let len = usize::try_from(len).map_err(|_| Malformed)?;
            if rest.len() < len {
                return Err(Malformed);
            }
            Ok(Some(rest.split_to(len)))
        }
        WireType::StartGroup if depth > 0 => loop {
            let (inner, inner_type) = decode_key(rest).map_err(|_| Malformed)?;
            if inner_type == WireType::EndGroup {
                return if inner == number { Ok(None) } else { Err(Malformed) };
            }
            skip(rest, inner, inner_type, depth - 1)?;
        },
        WireType::StartGroup | WireType::EndGroup => Err(Malformed),
    }
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
        let bytes = Bytes::from(crate::v1::Task { id: "a".into(), ..Default::default() }.encode_to_vec());
        let (kept, dropped) = split(&bytes, |_| true).unwrap();
        assert_eq!((kept.as_ptr(), dropped.len()), (bytes.as_ptr(), 0));
    }

    #[test]
    fn truncated_overlong_and_unbalanced_bytes_are_malformed() {
        for bytes in [
            &[0x0a][..],                // a key without its value
            &[0x0a, 0x05, 1],           // shorter than it says
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x0c],                    // the end of a group that never began
            &[0x0b, 0x14],              // a group ended by another's end
            &[0x0b],                    // a group without an end
            &[0x00, 0x01],              // field number 0
            &[0x0f],                    // wire type 7
            &[0x0d, 1, 2, 3],           // three of four bytes
        ] {
            let result: Result<Vec<_>, _> = fields(Bytes::copy_from_slice(bytes)).collect();
            assert_eq!(result, Err(Malformed), "{bytes:?}");
        }
        let deep = [0x0b].repeat(1 << 16);
        assert_eq!(fields(Bytes::from(deep)).next(), Some(Err(Malformed)));
    }
}
