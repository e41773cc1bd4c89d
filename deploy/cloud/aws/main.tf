# A fleet of spot instances on AWS, each a node of one run. When one is taken back another one starts, and joins with the same invite.
#
#   export TF_VAR_invite="$(cat invite.txt)"
#   terraform apply -var from=https://example.com/pnode/v0.1.0 -var vpc=vpc-... -var 'subnets=["subnet-..."]'
#
# The invite is in the user data and in Terraform's state: whoever reads either can use it.
terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0, < 7.0"
    }
  }
}

variable "invite" {
  description = "What `pnode invite --uses 50 --ttl 168h` printed: each new instance uses it once"
  type        = string
  sensitive   = true
}

variable "from" {
  description = "Address of the folder with a release's files"
  type        = string
}

variable "vpc" {
  type = string
}

variable "subnets" {
  description = "Subnets that lead to the Internet, in several zones"
  type        = list(string)
}

variable "nodes" {
  type    = number
  default = 4
}

variable "instance_types" {
  description = "Any of these, the same kind of processor or GPU or not: the planner cuts the model to what is there"
  type        = list(string)
  default     = ["c7a.2xlarge", "c7i.2xlarge", "m7a.2xlarge"]
}

variable "image" {
  description = "AMI with systemd, cloud-init and curl; for GPUs one with NVIDIA's driver. Default: Ubuntu 24.04 (amd64)"
  type        = string
  default     = "resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
}

variable "disk" {
  description = "GB: two whole checkpoints (24 bytes a parameter) and the text"
  type        = number
  default     = 50
}

# Nodes of the fleet reach each other; others reach them where --listen names a port that is open here, too.
resource "aws_security_group" "pnode" {
  name_prefix = "pnode-"
  vpc_id      = var.vpc

  ingress {
    from_port = 0
    to_port   = 0
    protocol  = "-1"
    self      = true
  }

  egress {
    from_port        = 0
    to_port          = 0
    protocol         = "-1"
    cidr_blocks      = ["0.0.0.0/0"]
    ipv6_cidr_blocks = ["::/0"]
  }
}

resource "aws_launch_template" "pnode" {
  name_prefix            = "pnode-"
  image_id               = var.image
  update_default_version = true
  vpc_security_group_ids = [aws_security_group.pnode.id]

  user_data = base64encode(replace(replace(
    file("${path.module}/../cloud-init.yaml"), "pnode1-...", var.invite), "https://example.com/pnode/v0.1.0", var.from
  ))

  # IMDSv2, from which a node hears that its instance is taken back.
  metadata_options {
    http_tokens                 = "required"
    http_put_response_hop_limit = 2
  }

  block_device_mappings {
    device_name = "/dev/sda1"
    ebs {
      volume_size = var.disk
      volume_type = "gp3"
      encrypted   = true
    }
  }
}

resource "aws_autoscaling_group" "pnode" {
  name_prefix         = "pnode-"
  min_size            = 0
  max_size            = var.nodes
  desired_capacity    = var.nodes
  vpc_zone_identifier = var.subnets

  mixed_instances_policy {
    instances_distribution {
      on_demand_base_capacity                  = 0
      on_demand_percentage_above_base_capacity = 0
      spot_allocation_strategy                 = "price-capacity-optimized"
    }

    launch_template {
      launch_template_specification {
        launch_template_id = aws_launch_template.pnode.id
        version            = "$Latest"
      }

      dynamic "override" {
        for_each = var.instance_types
        content {
          instance_type = override.value
        }
      }
    }
  }

  tag {
    key                 = "Name"
    value               = "pnode"
    propagate_at_launch = true
  }
}
