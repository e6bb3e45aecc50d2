//! Several threads of a process at once: buffers, events, queues.

use super::client::{HOST, Kfd, PAGE, Ring};
use super::on_card;
use super::packets::signal;
use crate::Problem;
use crate::case::{Case, Step, same};
use doorbell_ioctl::abi::kfd as k;

/// Runs a body on several threads; the first failure counts.
fn together(count: usize, body: impl Fn(usize) -> Step + Sync) -> Step {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = (0..count).map(|n| scope.spawn(move || body(n))).collect();
        let ends = threads.into_iter().map(|t| t.join().map_err(|_| Problem::failed("a thread panicked"))?);
        ends.collect::<Vec<Step>>().into_iter().collect()
    })
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        on_card("threads.buffers", "Four threads make, map and free buffers, none sees another's", |kfd| {
            together(4, |n| {
                for round in 0..25 {
                    let buffer = kfd.buffer(PAGE, HOST)?;
                    let own = (n * 100 + round) as u32 + 1;
                    buffer.view.write_u32(8, own)?;
                    std::thread::yield_now();
                    same("what it stored", buffer.view.read_u32(8)?, own)?;
                    same("UNMAP", kfd.unmap(&buffer), Ok(1))?;
                    kfd.free(&buffer)?;
                }
                Ok(())
            })
        }),
        on_card("threads.queues", "Four threads with a queue each work at once", |kfd| {
            let gfx = kfd.gfx()?;
            together(4, |n| {
                let (memory, mut queue) = (kfd.buffer(PAGE, HOST)?, kfd.queue(Ring::Pm4)?);
                for value in 1..=50 {
                    queue.submit(&signal(Ring::Pm4, gfx, memory.va + 8 * n as u64, value))?;
                    kfd.bench.word(&memory.view, 8 * n as u64, value)?;
                }
                Ok(())
            })
        }),
        on_card("threads.events", "Four threads wait for an event each, and get their own", |kfd| {
            let events = [(); 4].map(|()| kfd.event(k::EVENT_SIGNAL, true));
            let mut ids = Vec::new();
            for event in events {
                ids.push(event?);
            }
            let ids = &ids;
            std::thread::scope(|scope| {
                let waiting: Vec<_> = ids.iter().map(|id| scope.spawn(move || kfd.wait_for(*id).map(|_| ()))).collect();
                for id in ids.iter().rev() {
                    kfd.call(&k::SET_EVENT, &mut k::SetEvent { event_id: *id, pad: 0 })?;
                }
                let ends = waiting.into_iter().map(|t| t.join().map_err(|_| Problem::failed("a thread panicked"))?);
                ends.collect::<Vec<Step>>().into_iter().collect()
            })
        }),
        on_card("threads.one-buffer-is-freed-once", "Of four threads that free one buffer one succeeds", |kfd| {
            let buffer = kfd.alloc(PAGE, HOST)?;
            let freed = std::sync::atomic::AtomicUsize::new(0);
            together(4, |_| {
                let mut args = k::FreeMemoryOfGpu { handle: buffer.handle };
                if kfd.raw(k::FREE_MEMORY_OF_GPU.desc.request, bytemuck::bytes_of_mut(&mut args)).is_ok() {
                    freed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
                Ok(())
            })?;
            kfd.forget(buffer.handle);
            same("how many succeeded", freed.into_inner(), 1)
        }),
        on_card(
            "threads.queues-come-and-go",
            "Threads create and destroy queues while another one works",
            |kfd: &Kfd<'_>| {
                let gfx = kfd.gfx()?;
                together(3, |n| {
                    if n == 0 {
                        let (memory, mut queue) = (kfd.buffer(PAGE, HOST)?, kfd.queue(Ring::Pm4)?);
                        for value in 1..=50 {
                            queue.submit(&signal(Ring::Pm4, gfx, memory.va, value))?;
                            kfd.bench.word(&memory.view, 0, value)?;
                        }
                        return Ok(());
                    }
                    for _ in 0..10 {
                        let queue = kfd.queue(Ring::Sdma)?;
                        kfd.destroy(&queue)?;
                    }
                    Ok(())
                })
            },
        ),
    ]
}
