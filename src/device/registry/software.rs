//! Machines of software GPUs: the cards of one chip lie in one machine, so that they reach each other's memory.

use super::DeviceOptions;
use crate::DeviceError;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Cards of a machine.
pub const CARDS: usize = 4;

/// A machine whose devices are open.
#[derive(Debug)]
struct Machine<D> {
    chip: String,
    options: DeviceOptions,
    driver: Weak<D>,
    /// Cards that were opened.
    taken: Vec<u32>,
}

/// The machines of a vendor. One lives as long as a device of it: the next one that is opened then finds a new machine.
#[derive(Debug)]
pub(super) struct Machines<D>(Mutex<Vec<Machine<D>>>);

impl<D> Default for Machines<D> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<D> Machines<D> {
    /// The driver of a machine whose card `index` is free, and whose other cards were opened with the same options.
    ///
    /// # Errors
    /// Those of `open`, which makes a new machine.
    pub(super) fn driver(
        &self,
        chip: &str,
        index: u32,
        options: &DeviceOptions,
        open: impl FnOnce() -> Result<Arc<D>, DeviceError>,
    ) -> Result<Arc<D>, DeviceError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|m| m.driver.strong_count() > 0);
        let fits = |m: &&mut Machine<D>| m.chip == chip && m.options == *options && !m.taken.contains(&index);
        if let Some(machine) = all.iter_mut().find(fits)
            && let Some(driver) = machine.driver.upgrade()
        {
            machine.taken.push(index);
            return Ok(driver);
        }
        let driver = open()?;
        let (chip, options, taken) = (chip.to_owned(), options.clone(), vec![index]);
        all.push(Machine { chip, options, driver: Arc::downgrade(&driver), taken });
        Ok(driver)
    }

    /// The cards of that number were closed.
    pub(super) fn left(&self, chip: &str, index: u32) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut().filter(|m| m.chip == chip).for_each(|m| m.taken.retain(|n| *n != index));
    }
}
