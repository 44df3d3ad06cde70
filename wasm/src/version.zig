//! The version of the filter, which it tells the sidecar. The same as `meshcache.__version__`.

pub const text = "0.1.0";
