//! What hyper does not tell of a head: whether Content-Length stood beside Transfer-Encoding. Two servers that read
//! such a request differently can be made to see different requests (RFC 9112, 6.1), so it is refused.
//!
//! Bytes are followed as they come in. Only lengths have to be understood: a connection ends behind a request with
//! Transfer-Encoding (server.rs), so nothing is looked at behind one.

#[derive(Default)]
pub struct HeadWatch {
    line: Vec<u8>,
    in_head: bool, // behind its first line
    length: Option<u64>,
    encoded: bool,
    both: bool,
    skip: u64, // bytes of a body
    blind: bool,
}

/// Of a line, what can decide. Longer ones are neither field.
const KEPT: usize = 64;

impl HeadWatch {
    pub fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.blind {
            if self.skip > 0 {
                let passed = self.skip.min(bytes.len() as u64);
                self.skip -= passed;
                bytes = &bytes[passed as usize..];
                continue;
            }
            let end = bytes.iter().position(|&b| b == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let room = KEPT.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            let Some(end) = end else { return };
            bytes = &bytes[end + 1..];
            self.end_of_line();
        }
    }

    /// Whether a head so far had both fields.
    pub fn both(&self) -> bool {
        self.both
    }

    fn end_of_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if line.is_empty() {
            if self.in_head {
                self.end_of_head();
            }
            return; // empty lines in front of a request are passed over
        }
        if !self.in_head {
            self.in_head = true;
            return;
        }
        let Some(colon) = line.iter().position(|&b| b == b':') else { return };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.eq_ignore_ascii_case(b"content-length") {
            let text = std::str::from_utf8(value).unwrap_or("").trim();
            self.length = Some(text.parse().unwrap_or(0)); // hyper refuses what is no number
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.encoded = true;
        }
    }

    fn end_of_head(&mut self) {
        self.both |= self.encoded && self.length.is_some();
        self.blind = self.encoded;
        self.skip = self.length.take().unwrap_or(0);
        self.in_head = false;
    }
}

#[cfg(test)]
mod tests {
    use super::HeadWatch;

    fn both(text: &str, step: usize) -> bool {
        let mut watch = HeadWatch::default();
        text.as_bytes().chunks(step).for_each(|part| watch.read(part));
        watch.both()
    }

    #[test]
    fn finds_both_fields_of_one_head() {
        let one = "POST / HTTP/1.1\r\nHost: a\r\n";
        let cases = [
            (format!("{one}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), true),
            (format!("{one}transfer-encoding:chunked\r\ncontent-length:5\r\n\r\n"), true),
            (format!("\r\n{one}Transfer-Encoding: chunked\nContent-Length: 5\n\n"), true),
            (format!("{one}Content-Length: 5\r\n\r\n12345{one}Transfer-Encoding: chunked\r\n\r\n"), false),
            (format!("{one}Transfer-Encoding: chunked\r\n\r\n17\r\n\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"), false),
            (
                format!("{one}Content-Length: 44\r\n\r\n\r\nTransfer-Encoding: chunked\r\nContent-Length: 9{one}\r\n"),
                false,
            ),
            (format!("{one}\r\n{one}Content-Length: 3\r\nTransfer-Encoding: x\r\n\r\n"), true),
        ];
        for (text, expected) in cases {
            for step in [1, 7, 1000] {
                assert_eq!(both(&text, step), expected, "{text:?} in pieces of {step}");
            }
        }
    }
}
