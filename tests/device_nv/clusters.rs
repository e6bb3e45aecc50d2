//! Blocks in clusters that read each other's shared memory: the size from the launch or from the kernel, by ptxas's
//! code and by ours.

use super::{LONG, read, small_options, words};
use doorbell::device::nv::{Driver, NvDevice, Selector};
use doorbell::device::{Arg, Code, Command, Device, DeviceError, Geometry, Kernel, KernelImage, QueueKind};
use doorbell::elf::cubin::Arch;
use doorbell::emu::nvrm::{Chip, Config, SoftNv};
use doorbell::isa::sass::compile::assemble;
use std::process::Command as Process;
use std::sync::Arc;

const THREADS: u32 = 64;
const GRID: [u32; 3] = [4, 2, 1];

/// A kernel's text with directives of its own.
fn text(directives: &str) -> String {
    include_str!("../data/ptx/neighbours.ptx").replace("// Directives come here.", directives)
}

/// A kernel by our assembler, and by ptxas.
fn cubins(directives: &str) -> [Vec<u8>; 2] {
    let dir = tempfile::tempdir().unwrap();
    let [from, to] = ["k.ptx", "k.cubin"].map(|name| dir.path().join(name));
    std::fs::write(&from, text(directives)).unwrap();
    let ptxas = concat!(env!("CARGO_MANIFEST_DIR"), "/target/nvidia/nvidia/cu13/bin/ptxas");
    let done = Process::new(ptxas).args(["-arch", "sm_90", "-o"]).arg(&to).arg(&from).status();
    assert!(done.expect("ptxas: `cargo xtask setup` installs it").success());
    [assemble(&text(directives), Arch::parse("sm_90").unwrap()).unwrap(), std::fs::read(to).unwrap()]
}

fn open(chip: Chip) -> (Arc<SoftNv>, NvDevice) {
    let soft = SoftNv::new(Config::new(chip)).unwrap();
    let driver = Driver::open("NV", Arc::clone(&soft) as _, false).unwrap();
    (soft, NvDevice::open("NV", &driver, &Selector::Index(0), &small_options()).unwrap())
}

fn load(d: &NvDevice, cubin: &[u8]) -> Kernel {
    let code = Code::Elf { bytes: cubin, entry: "neighbours" };
    d.load(&[KernelImage { name: "neighbours", code }]).unwrap().remove(0)
}

/// What the kernel stores.
fn expected(cluster: [u32; 3]) -> Vec<u32> {
    let [across, down, _] = GRID;
    let mut out = Vec::new();
    for (y, x) in (0..down).flat_map(|y| (0..across).map(move |x| (y, x))) {
        let corner = [x / cluster[0] * cluster[0], y / cluster[1] * cluster[1]];
        for thread in 0..THREADS {
            let ranks = (0..cluster[1]).flat_map(|dy| (0..cluster[0]).map(move |dx| (dx, dy)));
            let numbers = ranks.map(|(dx, dy)| ((corner[1] + dy) * across + corner[0] + dx) * 100 + thread);
            out.push(numbers.fold(0u32, |sum, n| sum.wrapping_mul(31).wrapping_add(n)));
        }
    }
    out
}

fn over(cluster: Option<[u32; 3]>) -> Geometry {
    Geometry { cluster, ..Geometry::of(GRID, [THREADS, 1, 1]) }
}

/// Launches; gives what was stored by the launch, and then by a recorded list of two.
fn run(d: &NvDevice, kernel: &Kernel, geometry: Geometry) -> Result<[Vec<u32>; 2], DeviceError> {
    let zeros = vec![0; (GRID[0] * GRID[1] * THREADS) as usize];
    let [once, listed] = [(); 2].map(|()| words(d, &zeros));
    let command = |m: &doorbell::device::Memory| Command::exec(kernel, [Arg::Buffer(m.at(0))], 1).over(geometry);
    let point = d.submit(QueueKind::Compute, &[command(&once)])?;
    d.wait(&point, LONG)?;
    let point = d.record(&[command(&once), command(&listed)])?.replay(&[])?;
    d.wait(&point, LONG)?;
    Ok([read(d, &once), read(d, &listed)])
}

#[test]
fn clusters_that_the_launch_names_read_each_others_shared_memory() {
    let (soft, d) = open(Chip::Sm90);
    for cubin in cubins("") {
        let kernel = load(&d, &cubin);
        for cluster in [[1, 1, 1], [2, 1, 1], [4, 1, 1], [1, 2, 1], [2, 2, 1], [4, 2, 1]] {
            let stored = run(&d, &kernel, over(Some(cluster))).unwrap();
            let expected = expected(cluster);
            assert!(stored.iter().all(|s| *s == expected), "{cluster:?}");
        }
        // A launch that names none has clusters of one block.
        assert_eq!(run(&d, &kernel, over(None)).unwrap()[0], expected([1, 1, 1]));
    }
    let reports: Vec<String> = soft.reports().iter().map(ToString::to_string).collect();
    assert_eq!(reports, Vec::<String>::new());
}

#[test]
fn a_kernel_that_asks_for_clusters_gets_them_and_no_others() {
    let (_soft, d) = open(Chip::Sm90);
    for cubin in cubins(".explicitcluster .reqnctapercluster 2, 2, 1").iter().chain(&cubins(".reqnctapercluster 2, 2"))
    {
        let kernel = load(&d, cubin);
        for asked in [None, Some([2, 2, 1])] {
            let stored = run(&d, &kernel, over(asked)).unwrap();
            assert!(stored.iter().all(|s| *s == expected([2, 2, 1])), "{asked:?}");
        }
        let error = run(&d, &kernel, over(Some([4, 1, 1]))).unwrap_err().to_string();
        assert!(error.contains("neighbours: cluster [4, 1, 1]: the kernel was compiled for another one"), "{error}");
    }
    for cubin in cubins(".explicitcluster .maxclusterrank 4") {
        let kernel = load(&d, &cubin);
        assert_eq!(run(&d, &kernel, over(Some([4, 1, 1]))).unwrap()[0], expected([4, 1, 1]));
        let refused = |cluster| run(&d, &kernel, over(cluster)).unwrap_err().to_string();
        assert!(refused(None).contains("must be launched with a cluster size (.explicitcluster)"), "{}", refused(None));
        let eight = refused(Some([4, 2, 1]));
        assert!(eight.contains("fewer CTAs (.maxclusterrank)"), "{eight}");
    }
}

#[test]
fn clusters_that_cannot_be_are_refused_before_anything_is_sent() {
    let (_soft, d) = open(Chip::Sm90);
    let kernel = load(&d, &cubins("")[0]);
    let refused = |cluster| run(&d, &kernel, over(Some(cluster))).unwrap_err().to_string();
    assert!(refused([3, 1, 1]).contains("cluster [3, 1, 1]: the grid is not a multiple of it"));
    assert!(refused([0, 1, 1]).contains("a cluster has 1 to 16 CTAs"));
    assert!(refused([4, 2, 4]).contains("a cluster has 1 to 16 CTAs"));
    // The device goes on.
    assert_eq!(run(&d, &kernel, over(Some([2, 1, 1]))).unwrap()[0], expected([2, 1, 1]));
    let (_soft, d) = open(Chip::Sm80);
    let cubin = assemble(
        include_str!("../data/cubin/device.ptx")
            .split("// Clusters of two")
            .next()
            .unwrap()
            .replace("sm_90", "sm_80")
            .as_str(),
        Arch::parse("sm_80").unwrap(),
    );
    let code = cubin.unwrap();
    let kernel =
        d.load(&[KernelImage { name: "add", code: Code::Elf { bytes: &code, entry: "add" } }]).unwrap().remove(0);
    let m = words(&d, &[0; 64]);
    let launch = |cluster| {
        let geometry = Geometry { cluster: Some(cluster), ..Geometry::of([2, 1, 1], [32, 1, 1]) };
        d.submit(QueueKind::Compute, &[Command::exec(&kernel, [Arg::Buffer(m.at(0)), Arg::Var(1)], 1).over(geometry)])
    };
    let error = launch([2, 1, 1]).unwrap_err().to_string();
    assert!(error.contains("cluster [2, 1, 1]: this chip has no clusters"), "{error}");
    d.wait(&launch([1, 1, 1]).unwrap(), LONG).unwrap();
    assert_eq!(read(&d, &m), vec![1; 64]);
}
