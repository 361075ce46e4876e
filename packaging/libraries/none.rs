// Empty: cargo wants a library for the manifest beside.
