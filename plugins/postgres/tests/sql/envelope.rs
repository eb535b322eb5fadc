//! Reads what an application would pass to `enqueue` out of the envelope of one of the kit's tasks.

use rdq_spi::NewTask;
use std::collections::BTreeMap;

/// The arguments of `enqueue` that are in no field of a [`NewTask`].
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) payload: Vec<u8>,
    pub(crate) headers: BTreeMap<String, String>,
}

/// The arguments, if the envelope holds nothing that `enqueue` cannot be told.
pub(crate) fn arguments(task: &NewTask) -> Option<Arguments> {
    let mut found = Arguments::default();
    let mut rest = &task.envelope[..];
    let mut last_header = String::new();
    while !rest.is_empty() {
        match field(&mut rest)? {
            // Id, queue and handler; priority and attempts. They are fields of the task, too.
            (2..=4, Value::Bytes(_)) | (9 | 10, Value::Number) => {}
            (6, Value::Bytes(payload)) => found.payload = payload.to_vec(),
            (8, Value::Bytes(header)) => {
                let (key, value) = entry(header)?;
                // In another order, or twice, they would come back otherwise.
                if (!found.headers.is_empty() && key <= last_header) || value.contains('\0') {
                    return None;
                }
                last_header.clone_from(&key);
                found.headers.insert(key, value);
            }
            _ => return None,
        }
    }
    Some(found)
}

enum Value<'a> {
    Number,
    Bytes(&'a [u8]),
}

fn entry(mut header: &[u8]) -> Option<(String, String)> {
    let mut text = |number| match field(&mut header)? {
        (found, Value::Bytes(bytes)) if found == number => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    };
    let entry = (text(1)?, text(2)?);
    header.is_empty().then_some(entry)
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let key = varint(rest)?;
    let value = match key & 7 {
        0 => {
            varint(rest)?;
            Value::Number
        }
        2 => {
            let len = usize::try_from(varint(rest)?).ok()?;
            let (bytes, after) = rest.split_at_checked(len)?;
            *rest = after;
            Value::Bytes(bytes)
        }
        _ => return None,
    };
    Some((key >> 3, value))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
