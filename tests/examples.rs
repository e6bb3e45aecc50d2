//! The examples run, here with small settings where they have any.

#[cfg(feature = "datasets")]
#[allow(dead_code)]
#[path = "../examples/mnist_conv.rs"]
mod mnist_conv;

#[cfg(feature = "datasets")]
#[allow(dead_code)]
#[path = "../examples/parallel.rs"]
mod parallel;

#[allow(dead_code)]
#[path = "../examples/lstm.rs"]
mod lstm;

#[path = "../examples/ramp.rs"]
mod ramp;

#[allow(dead_code)]
#[path = "../examples/transformer.rs"]
mod transformer;

#[test]
fn the_ramp_shows_what_it_says() {
    ramp::main().unwrap();
}

#[cfg(feature = "datasets")]
#[test]
fn a_small_convolutional_network_learns_the_digits() {
    let how = mnist_conv::Setting { width: 8, batch: 32, steps: 60, accuracy: 0.85 };
    mnist_conv::train(&how).unwrap();
    let e = mnist_conv::train(&mnist_conv::Setting { steps: 2, ..how }).unwrap_err().to_string();
    assert!(e.contains("wanted 0.85"), "{e}");
}

#[cfg(feature = "datasets")]
#[test]
fn losses_over_two_devices_are_those_of_one() {
    parallel::compare(&parallel::Setting { width: 8, batch: 32, steps: 20, devices: &[2] }).unwrap();
}

#[test]
fn a_small_recurrent_network_continues_waves() {
    let how = lstm::Setting { hidden: 12, length: 12, batch: 32, steps: 150, loss: 0.02 };
    let net = lstm::train(&how).unwrap();
    assert_eq!(lstm::continued(&net, &how).unwrap().len(), 8);
}

#[test]
fn a_small_transformer_sorts_and_writes_with_a_cache_what_it_says_without() {
    let how = transformer::Setting { digits: 2, size: 16, blocks: 1, batch: 32, steps: 200, accuracy: 0.8 };
    let net = transformer::train(&how).unwrap();
    let written = transformer::written(&net, &how, &[7, 3]).unwrap();
    // The same by reading everything anew for each token.
    let mut tokens = vec![7, 3, 10];
    for _ in 0..2 {
        tokens.push(transformer::said(&net, &tokens).unwrap());
    }
    assert_eq!(written, tokens[3..]);
}
