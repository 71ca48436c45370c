//! One entry on the disk: length, checksum of the content, checksum of these two, content.
//!
//! The header's own checksum tells a torn entry (header right, content cut short) from a damaged one.

use serde::Serialize;

/// Length, checksum of the content, checksum of the header.
pub(super) const HEADER: usize = 12;

/// Appends an entry.
pub(super) fn write(buffer: &mut Vec<u8>, entry: &impl Serialize) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; HEADER]);
    // Our entries always serialise, and a Vec always takes them.
    if serde_json::to_writer(&mut *buffer, entry).is_err() {
        buffer.truncate(start);
        return;
    }
    let content = buffer.get(start + HEADER..).unwrap_or_default();
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let checksum = crc32fast::hash(content);
    let header = header(length, checksum);
    if let Some(place) = buffer.get_mut(start..start + HEADER) {
        place.copy_from_slice(&header);
    }
}

fn header(length: u32, checksum: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let (front, own) = header.split_at_mut(8);
    front[..4].copy_from_slice(&length.to_le_bytes());
    front[4..].copy_from_slice(&checksum.to_le_bytes());
    own.copy_from_slice(&crc32fast::hash(front).to_le_bytes());
    header
}

/// What stands at a place of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read<'a> {
    /// A whole entry, and where the next one begins.
    Entry(&'a [u8], usize),
    /// The end.
    End,
    /// The beginning of an entry that was cut short.
    Torn,
    /// Not what was written.
    Damaged(&'static str),
}

/// Reads the entry at an offset.
pub(super) fn read(bytes: &[u8], offset: usize) -> Read<'_> {
    let rest = bytes.get(offset..).unwrap_or_default();
    if rest.is_empty() {
        return Read::End;
    }
    let Some((head, content)) = rest.split_at_checked(HEADER) else {
        return Read::Torn;
    };
    let number = |from: usize| {
        head.get(from..from + 4)
            .and_then(|part| part.try_into().ok())
            .map_or(0, u32::from_le_bytes)
    };
    let (length, checksum) = (number(0), number(4));
    if header(length, checksum) != head {
        // A file that was made longer before its content came ends in zeros.
        return if rest.iter().all(|byte| *byte == 0) {
            Read::Torn
        } else {
            Read::Damaged("an entry's header is wrong")
        };
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let Some(content_bytes) = content.get(..length) else {
        return Read::Torn;
    };
    if crc32fast::hash(content_bytes) == checksum {
        return Read::Entry(content_bytes, offset + HEADER + length);
    }
    if content.len() == length {
        Read::Torn
    } else {
        Read::Damaged("an entry's checksum is wrong")
    }
}
