//! Which certificates vouch for a server.

use ureq::tls::{Certificate, RootCerts};

/// Those of SSL_CERT_FILE or SSL_CERT_DIR, else the system's, else those that are compiled in.
pub fn roots() -> RootCerts {
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        return RootCerts::WebPki;
    }
    let owned: Vec<_> = found.iter().map(|c| Certificate::from_der(c.as_ref()).to_owned()).collect();
    RootCerts::from(owned)
}
