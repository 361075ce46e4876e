//! What hyper does not tell of a head: whether Content-Length stood beside Transfer-Encoding. Two servers that read
//! such a request differently can be made to see different requests (RFC 9112, 6.1), so it is refused. Also whether a
//! head has begun to come, for which path, and whether it is one of another version of HTTP.
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
    foreign: bool,
    path: Vec<u8>,
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
    last: u128,  // its last 16 bytes
}

impl Line {
    /// Of a name; longer ones are neither of the two. Of a first line: method and path.
    const KEPT: usize = 32;

    fn read(&mut self, byte: u8) {
        self.begun |= byte != b'\r';
        self.last = self.last << 8 | u128::from(byte);
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

    /// The line ends with a version of HTTP that is newer than 1.
    fn is_foreign(&self) -> bool {
        let last = self.last.to_be_bytes();
        let last = last.strip_suffix(b"\r").unwrap_or(&last);
        let version = last.iter().rposition(|&b| b == b' ').map_or(last, |space| &last[space + 1..]);
        version.strip_prefix(b"HTTP/").and_then(|v| v.first()).is_some_and(|major| (b'2'..=b'9').contains(major))
    }

    /// As far as it is kept, without what a question mark begins; empty: there is none.
    fn path(&self) -> &[u8] {
        let ends = |b: &u8| b" ?\r".contains(b);
        self.name.split(|&b| b == b' ').nth(1).and_then(|rest| rest.split(ends).next()).unwrap_or_default()
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

    /// Bytes of a head came, which has not ended.
    pub fn begun(&self) -> bool {
        self.in_head || self.line.begun
    }

    /// The first line of a head asks for HTTP/2 or newer.
    pub fn foreign(&self) -> bool {
        self.foreign || (!self.in_head && self.line.is_foreign())
    }

    /// Of the last head that has begun, but for paths that are long.
    pub fn path(&self) -> Vec<u8> {
        if self.in_head || !self.line.begun {
            self.path.clone()
        } else {
            self.line.path().to_vec()
        }
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
            self.foreign |= line.is_foreign(); // nothing is read behind it
            self.path = line.path().to_vec();
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

    #[test]
    fn knows_other_versions_and_heads_that_have_begun() {
        let cases = [
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true),
            ("PRI * HTTP/2.0", true),
            ("GET /health HTTP/3\r\n", true),
            ("GET /health HTTP/1.1\r\nHost: HTTP/2.0\r\n", false),
            ("GET /HTTP/2.0 HTTP/1.0\r\n\r\n", false),
            ("GET /HTTP/2", false),
            ("GET /health\r\n", false),
        ];
        for (text, foreign) in cases {
            for step in [1, 7, 1000] {
                let mut watch = HeadWatch::default();
                assert!(!watch.begun());
                text.as_bytes().chunks(step).for_each(|part| watch.read(part));
                assert_eq!(watch.foreign(), foreign, "{text:?} in pieces of {step}");
            }
        }
        let mut watch = HeadWatch::default();
        for (text, path) in [
            ("", ""),
            ("POST /v1/mess", "/v1/mess"),
            ("ages?beta=true", "/v1/messages"),
            (" HTTP/1.1\r\nA: b\r\nbroken line\r\n", "/v1/messages"),
            ("Content-Length: 1\r\n\r\nx", "/v1/messages"),
            ("GET /v1/messages\r\n\r\n", "/v1/messages"),
            ("GET", ""),
            (" http://host/a", "http"),
            ("\r\n\r\nGET /v1/messages/count_tokens HTTP/1.1\r\n", "/v1/messages/count_tokens"),
        ] {
            watch.read(text.as_bytes());
            assert_eq!(String::from_utf8_lossy(&watch.path()), path, "behind {text:?}");
        }
        let mut watch = HeadWatch::default();
        let body = "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        for (text, begun) in [("\r\n", false), ("P", true), (&body[1..], false), ("\r\n", false), ("GET", true)] {
            watch.read(text.as_bytes());
            assert_eq!(watch.begun(), begun, "behind {text:?}");
        }
    }
}
