//! Opens an rdq store from its URL.
