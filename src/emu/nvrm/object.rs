//! RM's objects: a tree a client, with handles, parents, and the state of each object.
//!
//! Source: `rs_client.c`, `rs_server.c`, `resource_list.h` of the open kernel modules 595.45. Left out: access rights
//! and shares except between clients of one process, sessions, handles' ranges.

use super::channel::{Channel, Group};
use super::dma::VirtualRange;
use super::memory::Memory;
use super::space::VaSpace;
use super::status;
use doorbell_ioctl::abi::nvrm::Status;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an object is.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Client,
    Device {
        gpu: usize,
    },
    Subdevice {
        gpu: usize,
        /// One object an instance and device.
        instance: u32,
    },
    Space(Arc<VaSpace>),
    Memory(Arc<Memory>),
    /// Class NV50_MEMORY_VIRTUAL: addresses of a space that RM maps itself.
    Virtual(Arc<VirtualRange>),
    Group(Arc<Group>),
    ContextShare {
        space: Arc<VaSpace>,
        subcontext: u32,
    },
    Channel(Arc<Channel>),
    /// Of a channel: compute or copy.
    Engine,
    /// Doorbell and clock.
    Usermode {
        gpu: usize,
        bar1: bool,
    },
    Debugger {
        gpu: usize,
    },
    Event,
    ConfidentialCompute,
}

/// An object of a client.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub parent: u32,
    pub class: u32,
    pub body: Body,
    /// Objects whose end is this one's.
    pub needs: Vec<u32>,
}

impl Object {
    /// The card that it belongs to; none for what belongs to the client.
    #[must_use]
    pub(crate) fn gpu(&self) -> Option<usize> {
        match &self.body {
            Body::Device { gpu }
            | Body::Subdevice { gpu, .. }
            | Body::Usermode { gpu, .. }
            | Body::Debugger { gpu } => Some(*gpu),
            Body::Space(space) | Body::ContextShare { space, .. } => Some(space.gpu),
            Body::Virtual(range) => Some(range.space.gpu),
            Body::Memory(memory) => Some(memory.gpu),
            Body::Group(group) => Some(group.gpu),
            Body::Channel(channel) => Some(channel.group.gpu),
            Body::Client | Body::Engine | Body::Event | Body::ConfidentialCompute => None,
        }
    }
}

/// Handles that the driver chooses.
const FIRST_CLIENT: u32 = 0xc1d0_0000;
const FIRST_OBJECT: u32 = 0xcaf0_0000;

/// A client and its objects by handle; its own handle is the root's.
#[derive(Debug)]
pub(crate) struct Client {
    pub handle: u32,
    /// The control file that made it.
    pub file: u64,
    objects: BTreeMap<u32, Object>,
    next: u32,
}

impl Client {
    fn new(handle: u32, file: u64, class: u32) -> Self {
        let root = Object { parent: 0, class, body: Body::Client, needs: Vec::new() };
        Self { handle, file, objects: BTreeMap::from([(handle, root)]), next: FIRST_OBJECT }
    }

    /// # Errors
    /// `OBJECT_NOT_FOUND`.
    pub(crate) fn object(&self, handle: u32) -> Result<&Object, Status> {
        self.objects.get(&handle).ok_or(status::OBJECT_NOT_FOUND)
    }

    /// Objects by handle.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (u32, &Object)> {
        self.objects.iter().map(|(handle, object)| (*handle, object))
    }

    /// The handle of a new object: the requested one, or with 0 a free one.
    ///
    /// # Errors
    /// `INVALID_OBJECT_HANDLE` for the client's own, `INSERT_DUPLICATE_NAME` for one that is taken.
    pub(crate) fn free_handle(&mut self, asked: u32) -> Result<u32, Status> {
        if asked == 0 {
            while self.objects.contains_key(&self.next) {
                self.next = self.next.wrapping_add(1);
            }
            return Ok(self.next);
        }
        match asked {
            _ if asked == self.handle => Err(status::INVALID_OBJECT_HANDLE),
            _ if self.objects.contains_key(&asked) => Err(status::INSERT_DUPLICATE_NAME),
            _ => Ok(asked),
        }
    }

    pub(crate) fn insert(&mut self, handle: u32, object: Object) {
        self.objects.insert(handle, object);
    }

    /// Removes an object with its children and dependants: last created first, so that none outlives what it depends
    /// on.
    ///
    /// # Errors
    /// `OBJECT_NOT_FOUND`.
    pub(crate) fn remove(&mut self, handle: u32) -> Result<Vec<(u32, Object)>, Status> {
        self.object(handle)?;
        let mut doomed = vec![handle];
        let mut at = 0;
        while let Some(&end) = doomed.get(at) {
            let falls = |o: &Object| o.parent == end || o.needs.contains(&end);
            let below: Vec<u32> = self.objects().filter(|(_, o)| falls(o)).map(|(h, _)| h).collect();
            doomed.extend(below.into_iter().filter(|h| *h != end));
            at += 1;
        }
        let mut removed: Vec<(u32, Object)> = Vec::new();
        for handle in doomed.into_iter().rev() {
            removed.extend(self.objects.remove(&handle).map(|object| (handle, object)));
        }
        Ok(removed)
    }
}

/// All clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: BTreeMap<u32, Client>,
}

impl Clients {
    /// A new client of a control file, with the requested handle or, with 0, a free one.
    ///
    /// # Errors
    /// `INSERT_DUPLICATE_NAME`.
    pub(crate) fn create(&mut self, asked: u32, file: u64, class: u32) -> Result<u32, Status> {
        let free = || (FIRST_CLIENT..).find(|handle| !self.all.contains_key(handle)).unwrap_or(u32::MAX);
        let handle = if asked == 0 { free() } else { asked };
        if self.all.contains_key(&handle) {
            return Err(status::INSERT_DUPLICATE_NAME);
        }
        self.all.insert(handle, Client::new(handle, file, class));
        Ok(handle)
    }

    /// A client as a file may use it: the one that made it.
    ///
    /// # Errors
    /// `absent` where there is no such client, `INVALID_CLIENT` for another file's.
    pub(crate) fn of(&mut self, handle: u32, file: u64, absent: Status) -> Result<&mut Client, Status> {
        let client = self.all.get_mut(&handle).ok_or(absent)?;
        if client.file == file { Ok(client) } else { Err(status::INVALID_CLIENT) }
    }

    /// A client, whichever file asks: for UVM and for objects made of another client's.
    ///
    /// # Errors
    /// `INVALID_CLIENT`.
    pub(crate) fn any(&self, handle: u32) -> Result<&Client, Status> {
        self.all.get(&handle).ok_or(status::INVALID_CLIENT)
    }

    /// Clients of a file.
    pub(crate) fn of_file(&self, file: u64) -> Vec<u32> {
        self.all.values().filter(|client| client.file == file).map(|client| client.handle).collect()
    }

    pub(crate) fn remove(&mut self, handle: u32) -> Option<Client> {
        self.all.remove(&handle)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.all.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(parent: u32, needs: &[u32]) -> Object {
        Object { parent, class: 0, body: Body::Event, needs: needs.to_vec() }
    }

    #[test]
    fn freeing_takes_children_and_dependants_with_it_last_first() {
        let mut clients = Clients::default();
        let root = clients.create(0, 1, 0x41).unwrap();
        let client = clients.of(root, 1, status::INVALID_CLIENT).unwrap();
        for (handle, parent, needs) in [(1, root, &[][..]), (2, 1, &[]), (3, 1, &[2]), (4, 3, &[]), (5, root, &[])] {
            client.insert(handle, object(parent, needs));
        }
        let removed: Vec<u32> = client.remove(2).unwrap().into_iter().map(|(handle, _)| handle).collect();
        assert_eq!(removed, [4, 3, 2]);
        assert_eq!(client.remove(2).unwrap_err(), status::OBJECT_NOT_FOUND);
        assert!(client.object(1).is_ok() && client.object(5).is_ok());
    }

    #[test]
    fn handles_are_the_callers_or_free_ones() {
        let mut clients = Clients::default();
        let root = clients.create(0, 1, 0x41).unwrap();
        assert_ne!(clients.create(0, 1, 0x41).unwrap(), root);
        assert_eq!(clients.create(root, 1, 0x41), Err(status::INSERT_DUPLICATE_NAME));
        assert_eq!(clients.of(root, 2, status::OBJECT_NOT_FOUND).unwrap_err(), status::INVALID_CLIENT);
        let client = clients.of(root, 1, status::OBJECT_NOT_FOUND).unwrap();
        assert_eq!(client.free_handle(root), Err(status::INVALID_OBJECT_HANDLE));
        let chosen = client.free_handle(0).unwrap();
        client.insert(chosen, object(root, &[]));
        assert_eq!(client.free_handle(chosen), Err(status::INSERT_DUPLICATE_NAME));
        assert_ne!(client.free_handle(0).unwrap(), chosen);
    }
}
