//! One folder a device, and the registry.
