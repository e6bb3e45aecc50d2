//! Bounded caches: [`Bounded`] in memory, [`DiskCache`] across processes.
//!
//! Layer: used by kernel search and `ptxas`, as keys and values of bytes.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::Hash;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// A map with at most `limit` entries. It drops entries that were not used during at least the last `limit / 2`
/// insertions.
#[derive(Debug)]
pub(super) struct Bounded<K, V> {
    /// Recently inserted or used entries; when it has half of the limit, it becomes `old`.
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Eq + Hash, V: Clone> Bounded<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Bounded { young: HashMap::new(), old: HashMap::new(), half: (limit / 2).max(1) }
    }

    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.old.remove(&key);
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.young.iter().chain(&self.old)
    }

    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

/// Most bytes of all entries together.
const LIMIT_BYTES: u64 = 256 << 20;
/// The first bytes of an entry; changed whenever the file's layout changes.
const MAGIC: &[u8; 8] = b"dbcache1";
/// Partly written files of another process are removed after this time.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Values by keys in a folder, one file each. An entry is used only if it is intact and for exactly this key and this
/// release of the program; any other is ignored, and replaced by the next value. If the folder cannot be written,
/// nothing is cached.
#[derive(Debug)]
pub(super) struct DiskCache {
    folder: PathBuf,
    limit_bytes: u64,
    /// Bytes written since the folder was last cleaned; its initial value makes the first entry of a process clean it.
    since_cleaning: AtomicU64,
}

impl DiskCache {
    pub(crate) fn new(folder: &Path) -> DiskCache {
        DiskCache::within(folder, LIMIT_BYTES)
    }

    fn within(folder: &Path, limit_bytes: u64) -> DiskCache {
        DiskCache { folder: folder.join("entries"), limit_bytes, since_cleaning: AtomicU64::new(limit_bytes) }
    }

    /// The cached value of a kind for a key.
    pub(crate) fn get(&self, kind: &str, key: &[u8]) -> Option<Vec<u8>> {
        let path = self.path(kind, key);
        let value = parse(&fs::read(&path).ok()?, key)?.to_vec();
        // Marks the entry as recently used.
        let touched = File::options().append(true).open(&path).and_then(|f| f.set_modified(SystemTime::now()));
        touched.unwrap_or_else(|e| log::debug!("{}: {e}", path.display()));
        Some(value)
    }

    /// Caches a value; errors are ignored, and the value is computed again next time.
    pub(crate) fn put(&self, kind: &str, key: &[u8], value: &[u8]) {
        let (path, bytes) = (self.path(kind, key), entry(key, value));
        let written = self.write_whole(&path, &bytes).and_then(|()| self.clean(bytes.len() as u64));
        written.unwrap_or_else(|e| log::debug!("{}: {e}", path.display()));
    }

    fn path(&self, kind: &str, key: &[u8]) -> PathBuf {
        self.folder.join(format!("{kind}-{:016x}{:016x}", hash(key, 0), hash(key, 1)))
    }

    /// Writes a file atomically, since another process may read it.
    fn write_whole(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    }

    /// Removes the least recently used entries if the limit is exceeded; checks each time a sixteenth of the limit was
    /// written.
    fn clean(&self, written: u64) -> io::Result<()> {
        if self.since_cleaning.fetch_add(written, Ordering::Relaxed) + written < self.limit_bytes / 16 {
            return Ok(());
        }
        self.since_cleaning.store(0, Ordering::Relaxed);
        let (mut files, mut total) = (Vec::new(), 0);
        for file in fs::read_dir(&self.folder)? {
            let file = file?;
            // Another process may have removed it in the meantime.
            let Ok(metadata) = file.metadata() else { continue };
            let used = metadata.modified()?;
            let name = file.file_name();
            let is_part = name.as_encoded_bytes().starts_with(b".");
            if is_part && used.elapsed().is_ok_and(|age| age > ABANDONED) {
                let _ = fs::remove_file(file.path());
            } else if !is_part {
                total += metadata.len();
                files.push((used, metadata.len(), file.path()));
            }
        }
        crate::sort::by_key(&mut files, |f| f.0);
        for (_, len, path) in files {
            if total <= self.limit_bytes {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= len;
            }
        }
        Ok(())
    }
}

/// A file's contents: magic, program version, key and value with their lengths, and a checksum.
fn entry(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for part in [env!("CARGO_PKG_VERSION").as_bytes(), key, value] {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    let sum = hash(&bytes, 2);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// The value in a file's bytes; `None` if they are damaged, truncated, or for another key or release.
fn parse<'a>(bytes: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    if hash(body, 2) != u64::from_le_bytes(*sum) {
        return None;
    }
    let rest = body.strip_prefix(MAGIC.as_slice())?;
    let (version, rest) = length_prefixed(rest)?;
    let (found, rest) = length_prefixed(rest)?;
    let (value, rest) = length_prefixed(rest)?;
    (version == env!("CARGO_PKG_VERSION").as_bytes() && found == key && rest.is_empty()).then_some(value)
}

/// Splits off bytes preceded by their length; returns them and the rest.
fn length_prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*count)).ok()?)
}

/// FNV-1a with one of several starting points.
pub(super) fn hash(bytes: &[u8], which: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325u64 ^ which.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes.iter().fold(start, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_map_lets_go_of_what_nobody_asks_for() {
        let mut map = Bounded::new(4);
        for k in 0..100 {
            map.insert(k, k);
            assert_eq!((map.get(&0), map.get(&k)), (Some(0), Some(k)));
            assert!(map.iter().count() <= 4);
        }
        assert_eq!(map.get(&50), None);
        map.insert(0, 7);
        assert_eq!((map.get(&0), map.iter().filter(|e| *e.0 == 0).count()), (Some(7), 1));
        map.clear();
        assert_eq!(map.iter().count(), 0);
    }

    #[test]
    fn what_is_kept_is_found_by_another_cache_under_its_key_and_kind() {
        let folder = tempfile::tempdir().unwrap();
        let new = || DiskCache::new(folder.path());
        assert_eq!(new().get("a", b"key"), None);
        new().put("a", b"key", b"value");
        new().put("a", b"", b"");
        assert_eq!(new().get("a", b"key").unwrap(), b"value");
        assert_eq!(new().get("a", b"").unwrap(), b"");
        assert_eq!((new().get("b", b"key"), new().get("a", b"ke")), (None, None));
        new().put("a", b"key", b"other");
        assert_eq!(new().get("a", b"key").unwrap(), b"other");
    }

    #[test]
    fn a_damaged_cut_or_foreign_entry_counts_as_none_and_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(folder.path());
        let path = cache.path("a", b"key");
        let whole = entry(b"key", b"value");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            for bytes in [&damaged[..], &whole[..at]] {
                cache.put("a", b"key", b"value");
                fs::write(&path, bytes).unwrap();
                assert_eq!(cache.get("a", b"key"), None, "{at}");
            }
        }
        fs::write(&path, entry(b"another key", b"value")).unwrap();
        assert_eq!(cache.get("a", b"key"), None);
        cache.put("a", b"key", b"value");
        assert_eq!(cache.get("a", b"key").unwrap(), b"value");
    }

    #[test]
    fn the_folder_stays_within_its_limit_and_keeps_what_was_used_last() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::within(folder.path(), 16 << 10);
        let old = SystemTime::now() - Duration::from_secs(7200);
        let abandoned = cache.folder.join(".tmp_abandoned");
        fs::create_dir_all(&cache.folder).unwrap();
        for path in [&abandoned, &cache.folder.join(".tmp_now")] {
            fs::write(path, b"part").unwrap();
        }
        File::options().append(true).open(&abandoned).unwrap().set_modified(old).unwrap();
        for k in 0..64u8 {
            cache.put("a", &[k], &[k; 1000]);
            // Each is a second older than the next, and the first is read again.
            let time = old + Duration::from_secs(k.into());
            File::options().append(true).open(cache.path("a", &[k])).unwrap().set_modified(time).unwrap();
            assert!(cache.get("a", &[0]).is_some(), "{k}");
        }
        let names: Vec<_> = fs::read_dir(&cache.folder).unwrap().map(|f| f.unwrap().file_name()).collect();
        assert!((8..=17).contains(&names.len()), "{names:?}");
        assert!(!abandoned.exists() && cache.folder.join(".tmp_now").exists());
        assert_eq!((cache.get("a", &[1]), cache.get("a", &[63]).unwrap()), (None, vec![63; 1000]));
    }

    #[test]
    fn a_folder_that_cannot_be_made_keeps_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = DiskCache::new(file.path());
        cache.put("a", b"key", b"value");
        assert_eq!(cache.get("a", b"key"), None);
    }
}
