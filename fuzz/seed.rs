//! Writes the hand-made seeds of every target into its corpus: the start of a new corpus.

#[path = "bodies.rs"]
mod bodies;
#[path = "seeds.rs"]
mod seeds;

fn main() -> std::io::Result<()> {
    for (target, _) in bodies::TARGETS {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&folder)?;
        for (n, seed) in seeds::of(target).iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{n:02}")), seed)?;
        }
    }
    Ok(())
}
