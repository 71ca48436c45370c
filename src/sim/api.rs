//! A simulated kube-apiserver: a tower service that speaks the Kubernetes REST protocol over `Objects`,
//! so that `kube::Client` and kubectl work with it as with a real one.

pub mod containers;
