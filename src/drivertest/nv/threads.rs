//! Several threads of a process at once.

use super::client::{Device, PAGE, copy, release, want};
use super::on_card;
use crate::Problem;
use crate::case::{Case, Step, same};

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
        on_card("threads.objects", "Four threads make and free objects of one client", |device: &Device<'_>| {
            together(4, |_| {
                for _ in 0..50 {
                    let one = want("ALLOC", device.small_object(0))?;
                    want("FREE", device.client.free(one))?;
                }
                Ok(())
            })
        }),
        on_card("threads.channels", "Four threads with a channel each work at once", |device| {
            together(4, |_| {
                let (mut channel, page) = (device.compute()?, device.system(PAGE)?);
                for value in 1..=50 {
                    channel.submit(&release(page.va, value))?;
                    device.word(&page.view, 0, value)?;
                }
                Ok(())
            })
        }),
        on_card("threads.copies", "Two threads copy on two engines", |device| {
            together(2, |n| {
                let (mut channel, page) = (device.copy(n)?, device.system(PAGE)?);
                for value in 1..=50_u64 {
                    page.view.write_u64(64, value)?;
                    channel.push(&copy(page.va + 64, page.va + 128, 8))?;
                    channel.push(&release(page.va, value))?;
                    channel.ring()?;
                    device.word(&page.view, 0, value)?;
                    same("its copy", page.view.read_u64(128)?, value)?;
                }
                Ok(())
            })
        }),
        on_card("threads.ranges", "Four threads make and free ranges", |device| {
            together(4, |_| {
                for _ in 0..50 {
                    let base = device.take_va(PAGE);
                    want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(base, PAGE))?;
                    want("UVM_FREE", device.free_range(base, PAGE))?;
                }
                Ok(())
            })
        }),
    ]
}
