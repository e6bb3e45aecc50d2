//! `doorbell viz --serve`: the page of a command while it runs. The command writes its page often; a browser is told to
//! load it again, and finds its view and selection in the page's address.

use super::{CliError, Output};
use doorbell::engine::session;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Set where a command is to write its page often.
pub(crate) const OFTEN: &str = "DOORBELL_VIZ_OFTEN";
/// How often.
const EVERY: Duration = Duration::from_secs(2);
// TIMEOUT: a browser on this machine sends its request at once.
const REQUEST: Duration = Duration::from_secs(5);

/// Whether Ctrl-C was pressed, where somebody else is to end by it first.
pub(crate) static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Writes the page of this command often, if it is asked to.
pub(crate) fn write_often() -> Result<(), CliError> {
    if std::env::var_os(OFTEN).is_none() {
        return Ok(());
    }
    let session = Arc::downgrade(&session()?);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(EVERY);
            let Some(s) = session.upgrade() else { return };
            if let Err(e) = s.write_page() {
                eprintln!("doorbell: {e}");
            }
        }
    });
    Ok(())
}

/// Serves one file.
pub(crate) struct Server {
    is_running: Arc<AtomicBool>,
}

impl Server {
    /// Listens at an address.
    pub(crate) fn start(at: SocketAddr, page: &Path, output: Output) -> Result<Server, CliError> {
        let listener = TcpListener::bind(at).map_err(|e| CliError::CouldNotRun(format!("{at}: {e}")))?;
        let bound = listener.local_addr().unwrap_or(at);
        output.say(&format!("http://{bound}/ shows the run; Ctrl-C ends it"));
        let server = Server { is_running: Arc::new(AtomicBool::new(true)) };
        let (is_running, page) = (server.is_running.clone(), page.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A browser that went away gets nothing.
                let _gone = answer(stream, &page, is_running.load(Ordering::Relaxed));
            }
        });
        Ok(server)
    }

    /// The command has ended: serves its page until Ctrl-C.
    pub(crate) fn wait(self) {
        self.is_running.store(false, Ordering::Relaxed);
        while !INTERRUPTED.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Answers any request with the page.
fn answer(mut stream: TcpStream, page: &PathBuf, is_running: bool) -> std::io::Result<()> {
    stream.set_read_timeout(Some(REQUEST))?;
    let mut first = String::new();
    BufReader::new(&stream).read_line(&mut first)?;
    let path = first.split(' ').nth(1).unwrap_or("/");
    if !first.starts_with("GET ") || path != "/" {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let waiting = b"<!DOCTYPE html><title>Doorbell</title><p>The command has computed nothing yet.</p>".to_vec();
    let body = std::fs::read(page).unwrap_or(waiting);
    let refresh = if is_running { "Refresh: 3\r\n" } else { "" };
    let kind = "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nConnection: close\r\n";
    write!(stream, "HTTP/1.1 200 OK\r\n{kind}{refresh}Content-Length: {}\r\n\r\n", body.len())?;
    stream.write_all(&body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_running_command_s_page_is_loaded_again_and_other_paths_are_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("run.html");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let get = |path: &str, is_running: bool| {
            let mut client = TcpStream::connect(at).unwrap();
            write!(client, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
            answer(listener.accept().unwrap().0, &page, is_running).unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).unwrap();
            text
        };
        assert!(get("/", true).contains("computed nothing yet"));
        std::fs::write(&page, "the page").unwrap();
        assert!(get("/", true).contains("Refresh: 3") && get("/", true).ends_with("the page"));
        assert!(!get("/", false).contains("Refresh"));
        assert!(get("/../etc/passwd", false).starts_with("HTTP/1.1 404"));
    }
}
