//! Chromium without a window, driven over a pipe (`--remote-debugging-pipe`: JSON messages that end in a zero byte).
//! Source: the Chrome DevTools Protocol. Debian's package chromium; `cargo xtask setup` installs it.

use base64::Engine;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long an answer may take: the first start of a browser on a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    next: u64,
    page: Option<String>,
    /// What it told without being asked.
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts it with a page of this size.
    pub(crate) fn start(width: u32, height: u32) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "exec chromium \"$@\" 3<&0 4>&1 0</dev/null 1>&2", "sh", "--headless=new", "--no-sandbox"]);
        command.args(["--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.arg(format!("--window-size={width},{height}")).arg("about:blank");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (to, out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (send, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0) {
                let Ok(value) = serde_json::from_slice(&message.unwrap_or_default()) else { continue };
                if send.send(value).is_err() {
                    return;
                }
            }
        });
        let mut b = Browser { child, to, from, next: 0, page: None, events: Vec::new(), _profile: profile };
        let targets = b.call("Target.getTargets", json!({}));
        let infos = targets["targetInfos"].as_array().cloned().unwrap_or_default();
        let page = infos.iter().find(|t| t["type"] == "page").expect("a page");
        let at = b.call("Target.attachToTarget", json!({"targetId": page["targetId"], "flatten": true}));
        b.page = at["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"] {
            b.call(domain, json!({}));
        }
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        b.call("Emulation.setDeviceMetricsOverride", size);
        b
    }

    /// The answer to a call.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if let Some(page) = &self.page {
            message["sessionId"] = json!(page);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let sent = self.to.write_all(&bytes).and_then(|()| self.to.flush());
        sent.expect("chromium runs; `cargo xtask setup` installs it");
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let got = self.from.recv_timeout(left);
            let got = got.unwrap_or_else(|e| panic!("{method}: {e}; `cargo xtask setup` installs chromium"));
            if got["id"] == json!(self.next) {
                assert!(got.get("error").is_none(), "{method}: {}", got["error"]);
                return got["result"].clone();
            }
            self.events.push(got);
        }
    }

    /// Opens a file and waits until the page shows its run.
    pub(crate) fn open(&mut self, path: &Path) {
        let url = format!("file://{}", path.canonicalize().unwrap().display());
        self.call("Page.navigate", json!({"url": url}));
        self.wait("document.querySelectorAll('[role=tab]').length > 0 || document.querySelector('main .bad')");
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.eval(&format!("!!({expression})")) != json!(true) {
            assert!(Instant::now() < end, "never true: {expression}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The value of an expression; of a promise, what it gives.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let how = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let got = self.call("Runtime.evaluate", how);
        assert!(got.get("exceptionDetails").is_none(), "{expression}: {}", got["exceptionDetails"]);
        got["result"]["value"].clone()
    }

    /// Presses and releases a key.
    pub(crate) fn key(&mut self, key: &str) {
        let code = match key {
            "ArrowDown" => 40,
            "ArrowUp" => 38,
            "ArrowLeft" => 37,
            "ArrowRight" => 39,
            "Enter" => 13,
            "Escape" => 27,
            "Home" => 36,
            "End" => 35,
            "Tab" => 9,
            _ => 0,
        };
        let mut down = json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code});
        if key.chars().count() == 1 {
            down["text"] = json!(key);
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code}));
    }

    /// The picture of the page, as PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let got = self.call("Page.captureScreenshot", json!({"format": "png"}));
        base64::engine::general_purpose::STANDARD.decode(got["data"].as_str().unwrap()).unwrap()
    }

    /// Errors on the console and exceptions, and requests other than of the opened files.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        self.eval("new Promise((done) => setTimeout(done, 50))");
        let of = |e: &Value| match e["method"].as_str()? {
            "Runtime.exceptionThrown" => Some(e["params"]["exceptionDetails"].to_string()),
            "Log.entryAdded" => Some(e["params"]["entry"].to_string()),
            "Runtime.consoleAPICalled" => Some(e["params"].to_string()),
            "Network.requestWillBeSent" => {
                let url = e["params"]["request"]["url"].as_str()?;
                let is_document =
                    e["params"]["type"] == "Document" && (url.starts_with("file:") || url == "about:blank");
                (!is_document).then(|| format!("request of {url}"))
            }
            _ => None,
        };
        self.events.iter().filter_map(of).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ends = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Goes through all views by the keyboard, each with some keys of its own; what the first line of each says.
#[allow(dead_code, reason = "not every test walks")]
pub(crate) fn walk(b: &mut Browser) -> Vec<(String, String)> {
    let count = b.eval("state.views.size").as_u64().unwrap();
    let mut seen = Vec::new();
    b.eval("show('overview')");
    for _ in 0..count {
        b.key("]");
        let view = b.eval("state.view").as_str().unwrap().to_owned();
        // Parts are decoded when they are looked at.
        b.eval("new Promise((done) => setTimeout(done, 60))");
        for key in ["Home", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp", "End", "Home", "ArrowDown"] {
            b.key(key);
        }
        let text = b.eval("document.getElementById('main').innerText").as_str().unwrap_or_default().to_owned();
        seen.push((view, text));
    }
    seen
}
