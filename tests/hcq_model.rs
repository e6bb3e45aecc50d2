//! The queue's lock-free protocols under loom: every interleaving (and every allowed reordering) of small programs, on
//! the very code that the CPU device runs, instantiated with loom's atomics. A lost wake-up shows as a deadlock, a lost
//! update as a failed assertion.

use doorbell::hcq::ring::{Ring, Slots};
use doorbell::hcq::sync::{AtomicWord, Bell, Chunks, Role};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;

struct Word(AtomicU64);

impl AtomicWord for Word {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn replace(&self, old: u64, new: u64, success: Ordering) -> bool {
        self.0.compare_exchange(old, new, success, Ordering::Relaxed).is_ok()
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(value, order)
    }
    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

struct Storage([AtomicU32; 2]);

impl Slots for Storage {
    fn count(&self) -> u64 {
        2
    }
    fn load(&self, index: u64) -> u32 {
        self.0[index as usize].load(Ordering::Relaxed)
    }
    fn store(&self, index: u64, word: u32) {
        self.0[index as usize].store(word, Ordering::Relaxed);
    }
}

fn ring() -> Ring<Word, Storage> {
    Ring::over(Storage([AtomicU32::new(0), AtomicU32::new(0)]))
}

/// Explores all schedules with at most three preemptions: enough for every known bug of such protocols, and finite.
fn explore(program: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(program);
}

#[test]
fn ring_hands_over_every_word_once_and_in_order() {
    explore(|| {
        let ring = Arc::new(ring());
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let words = [11, 12, 13];
                let mut done = 0;
                while done < words.len() {
                    done += ring.push(&words[done..]);
                    thread::yield_now();
                }
            })
        };
        let mut got: Vec<u32> = Vec::new();
        while got.len() < 3 {
            let mut out = [0; 2];
            let have = ring.peek(&mut out);
            got.extend(&out[..have]);
            ring.retire(have);
            thread::yield_now();
        }
        producer.join().unwrap();
        assert_eq!(got, [11, 12, 13]);
        assert!(ring.is_empty());
    });
}

#[test]
fn chunks_of_two_jobs_run_once_each_with_their_own_description() {
    explore(|| {
        struct Job {
            chunks: Chunks<Word>,
            name: AtomicU64,
            ran: [AtomicU64; 4],
        }
        fn help(job: &Job) {
            while let Some(left) = job.chunks.claim() {
                let name = job.name.load(Ordering::Relaxed);
                job.ran[(name * 2 + u64::from(left) - 1) as usize].fetch_add(1, Ordering::Relaxed);
                job.chunks.finish_one();
            }
        }
        let ran = || AtomicU64::new(0);
        let job =
            Arc::new(Job { chunks: Chunks::default(), name: AtomicU64::new(0), ran: [ran(), ran(), ran(), ran()] });
        let helper = {
            let job = Arc::clone(&job);
            thread::spawn(move || help(&job))
        };
        for name in 0..2 {
            job.name.store(name, Ordering::Relaxed);
            job.chunks.publish(2);
            help(&job);
            while !job.chunks.is_finished() {
                thread::yield_now();
            }
            // All chunks of this job are visible here, whichever thread ran them.
            let sum: u64 = (0..2).map(|n| job.ran[(name * 2 + n) as usize].load(Ordering::Relaxed)).sum();
            assert_eq!(sum, 2);
        }
        helper.join().unwrap();
        assert!(job.ran.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    });
}

#[test]
fn sleeper_never_misses_work_published_before_the_bell() {
    explore(|| {
        let bell = Arc::new(Bell::<Word>::default());
        let work = Arc::new(AtomicU64::new(0));
        let sleeper = {
            let (bell, work) = (Arc::clone(&bell), Arc::clone(&work));
            thread::spawn(move || {
                bell.announce();
                if work.load(Ordering::Acquire) == 0 {
                    thread::park();
                }
                bell.leave();
                assert_eq!(work.load(Ordering::Acquire), 1);
            })
        };
        work.store(1, Ordering::Release);
        if bell.must_wake() {
            sleeper.thread().unpark();
        }
        sleeper.join().unwrap();
    });
}

#[test]
fn role_has_one_holder_and_no_work_is_left_behind() {
    explore(|| {
        struct Shared {
            role: Role<Word>,
            bell: Bell<Word>,
            pending: AtomicU64,
            holders: AtomicU64,
            done: AtomicU64,
        }
        let zero = || AtomicU64::new(0);
        let shared = Arc::new(Shared {
            role: Role::default(),
            bell: Bell::default(),
            pending: zero(),
            holders: zero(),
            done: zero(),
        });
        let run = |s: &Shared| {
            s.pending.fetch_add(1, Ordering::Release);
            let _nobody_sleeps_here = s.bell.must_wake();
            let left = s.role.serve(
                || s.pending.load(Ordering::Acquire) > 0,
                || {
                    assert_eq!(s.holders.fetch_add(1, Ordering::Relaxed), 0, "two consumers");
                    let n = s.pending.load(Ordering::Acquire);
                    s.pending.fetch_sub(n, Ordering::AcqRel);
                    s.done.fetch_add(n, Ordering::Relaxed);
                    s.holders.fetch_sub(1, Ordering::Relaxed);
                    true
                },
            );
            assert!(left);
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || run(&shared))
        };
        run(&shared);
        other.join().unwrap();
        assert_eq!((shared.pending.load(Ordering::Relaxed), shared.done.load(Ordering::Relaxed)), (0, 2));
    });
}

#[test]
fn value_of_a_signal_shows_the_work_before_it() {
    // The signal's two orderings (release at the consumer, acquire at the waiter) over a plain word of work.
    explore(|| {
        let (work, signal) = (Arc::new(AtomicU64::new(0)), Arc::new(Word::new(0)));
        let consumer = {
            let (work, signal) = (Arc::clone(&work), Arc::clone(&signal));
            thread::spawn(move || {
                work.store(42, Ordering::Relaxed);
                signal.store(1, Ordering::Release);
            })
        };
        while signal.load(Ordering::Acquire) < 1 {
            thread::yield_now();
        }
        assert_eq!(work.load(Ordering::Relaxed), 42);
        consumer.join().unwrap();
    });
}
