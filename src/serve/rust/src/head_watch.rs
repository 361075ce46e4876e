//! What hyper does not tell of a head: whether Content-Length stood beside Transfer-Encoding. Two servers that read
//! such a request differently can be made to see different requests (RFC 9112, 6.1), so it is refused.
//!
//! Bytes are followed as they come in. Only lengths have to be understood: a connection ends behind a request with
//! Transfer-Encoding (server.rs), so nothing is looked at behind one.

#[derive(Default)]
pub struct HeadWatch {
    line: Line,
    in_head: bool, // behind its first line
    length: Option<u64>,
    encoded: bool,
    both: bool,
    skip: u64, // bytes of a body
    blind: bool,
}

/// What can decide of a line, however long it is: a name may be followed by any number of spaces and zeros.
#[derive(Default)]
struct Line {
    begun: bool,
    name: Vec<u8>,
    in_value: bool,
    number: u64, // of its digits; hyper refuses a length with anything else in it
}

impl Line {
    /// Of a name; longer ones are neither of the two.
    const KEPT: usize = 32;

    fn read(&mut self, byte: u8) {
        self.begun |= byte != b'\r';
        match byte {
            b'0'..=b'9' if self.in_value => {
                self.number = self.number.saturating_mul(10).saturating_add((byte - b'0').into())
            }
            _ if self.in_value => {}
            b':' => self.in_value = true,
            _ if self.name.len() < Self::KEPT => self.name.push(byte),
            _ => {}
        }
    }

    fn is(&self, name: &str) -> bool {
        self.in_value && self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

impl HeadWatch {
    pub fn read(&mut self, mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            if self.blind {
                return;
            }
            if self.skip > 0 {
                let passed = self.skip.min(bytes.len() as u64);
                self.skip -= passed;
                bytes = &bytes[passed as usize..];
                continue;
            }
            match first {
                b'\n' => self.end_of_line(),
                byte => self.line.read(byte),
            }
            bytes = rest;
        }
    }

    /// Whether a head so far had both fields.
    pub fn both(&self) -> bool {
        self.both
    }

    fn end_of_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !line.begun {
            if self.in_head {
                self.end_of_head();
            }
            return; // empty lines in front of a request are passed over
        }
        if !self.in_head {
            self.in_head = true;
        } else if line.is("content-length") {
            self.length = Some(line.number);
        } else if line.is("transfer-encoding") {
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
        let two = format!("{one}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n");
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
            // Lengths that are as long as they like, and stand where they like.
            (format!("{one}Content-Length: {}5\r\n\r\n12345{two}", "0".repeat(100)), true),
            (format!("{one}Content-Length:{}5{}\r\n\r\n12345{two}", " ".repeat(100), "\t".repeat(100)), true),
            (format!("{one}Content-Length: {}\r\n\r\n{two}", "0".repeat(1000)), true),
            (format!("{one}{}: 5\r\n\r\n{two}", "a".repeat(1000)), true),
            (format!("{one}Transfer-Encodings: a\r\nContent-Length: 5\r\n\r\n"), false),
        ];
        for (text, expected) in cases {
            for step in [1, 7, 1000] {
                assert_eq!(both(&text, step), expected, "{text:?} in pieces of {step}");
            }
        }
    }
}
